//go:build !linux

package client

func newLeaseClock() leaseClock { return monotonicClock() }
