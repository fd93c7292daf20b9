package main

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/documents"
)

func TestDocumentedCommandsExist(t *testing.T) {
	documents.CheckProgram(t, newRoot, []string{"docs/configure.md"}, "manager")
}
