// Package controllerruntime tests managers of controller-runtime whose leader is elected by Conclave: real processes,
// real agents and a real API server.
package controllerruntime
