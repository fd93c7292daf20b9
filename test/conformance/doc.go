// Package conformance tests that the clients of all languages, and conclave-agent exec, behave alike with real agents.
package conformance
