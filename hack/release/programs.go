package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/conclave-dev/conclave/hack/internal/archive"
	"github.com/conclave-dev/conclave/hack/internal/gobuild"
)

// program is a program that users install on their machines.
type program struct {
	name, source string
	platforms    []string
}

const plugin = "kubectl-conclave"

var (
	agent    = program{"conclave-agent", "./cmd/agent", []string{"linux/amd64", "linux/arm64"}}
	programs = []program{
		{plugin, "./cmd/kubectl-conclave", []string{
			"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64",
		}},
		agent,
	}
)

// archiveOf returns the name of the archive of a program, and the ending of executables.
func (r *release) archiveOf(name string, platform gobuild.Platform) (file, exe string) {
	file = name + "_" + r.version + "_" + platform.OS + "_" + platform.Architecture
	if platform.OS == "windows" {
		return file + ".zip", ".exe"
	}
	return file + ".tar.gz", ""
}

// writeProgram writes the archive of a program for a platform.
func (r *release) writeProgram(ctx context.Context, p program, platform string) error {
	target, binary, err := r.compile(ctx, p, platform)
	if err != nil {
		return err
	}
	file, exe := r.archiveOf(p.name, target)
	files := []archive.File{{Name: p.name + exe, Executable: true, Content: binary}}
	contents := map[string]string{"LICENSE": filepath.Join(r.source, "LICENSE")}
	// kubectl runs this script of a shell for completion.
	if p.name == plugin && target.OS != "windows" {
		contents["kubectl_complete-conclave"] = filepath.Join(r.source, "cmd", plugin, "kubectl_complete-conclave")
	}
	for name, path := range contents {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files = append(files, archive.File{Name: name, Executable: !strings.HasPrefix(name, "LICENSE"), Content: content})
	}
	return r.done(file, archive.Write(filepath.Join(r.output, file), r.created, files))
}

// compile returns a platform and the binary of a program for it.
func (r *release) compile(ctx context.Context, p program, platform string) (gobuild.Platform, []byte, error) {
	target, err := gobuild.ParsePlatform(platform)
	if err != nil {
		return target, nil, err
	}
	scratch, err := os.MkdirTemp("", "release-")
	if err != nil {
		return target, nil, err
	}
	defer os.RemoveAll(scratch)
	binary := filepath.Join(scratch, p.name)
	build := gobuild.Program{Source: r.source, Package: p.source, Version: r.version}
	if err := build.Compile(ctx, target, binary); err != nil {
		return target, nil, err
	}
	content, err := os.ReadFile(binary)
	return target, content, err
}
