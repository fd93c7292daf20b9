package live

import "testing"

func TestChaosImageIsOfTheAgentsRelease(t *testing.T) {
	for agent, want := range map[string]string{
		"conclave/agent:v1":                     "conclave/chaos:v1",
		"example.org:5000/conclave/agent":       "example.org:5000/conclave/chaos",
		"example.org/conclave-agent:v1":         "example.org/conclave-chaos:v1",
		"conclave/agent@sha256:0123456789abcde": "",
		"example.org/mirror/elector:v1":         "",
	} {
		if got := chaosImage(agent); got != want {
			t.Errorf("%s: got image %q, want %q", agent, got, want)
		}
	}
}
