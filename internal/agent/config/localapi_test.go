package config

import (
	"strings"
	"testing"
)

func TestAddressOfLocalAPI(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:7374":                      "",
		"unix:///run/conclave/agent.sock":     "",
		"unix://run/agent.sock":               "absolute path",
		"unix:///run/../agent.sock":           "absolute path",
		"unix:///":                            "absolute path",
		"unix:///" + strings.Repeat("x", 107): "at most 107 bytes, got 108",
		"unix:/run/agent.sock":                "absolute path after unix://",
		"unix:relative.sock":                  "absolute path after unix://",
		"unix:7374":                           "",
		"unixes:relative.sock":                "a port from 1 to 65535",
	} {
		switch err := CheckAPI(address); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
}
