package main

import (
	"archive/zip"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestArchivesHaveBinariesOfTheirPlatform, by their build info, and by the format that the operating system and the processor accept.
func TestArchivesHaveBinariesOfTheirPlatform(t *testing.T) {
	r := newRelease(t, root)
	for _, c := range []struct{ platform, file, format string }{
		{"linux/arm64", "kubectl-conclave_v0.1.0_linux_arm64.tar.gz", "ELF EM_AARCH64"},
		{"darwin/arm64", "kubectl-conclave_v0.1.0_darwin_arm64.tar.gz", "Mach-O CpuArm64"},
		{"windows/amd64", "kubectl-conclave_v0.1.0_windows_amd64.zip", fmt.Sprintf("PE %#x", pe.IMAGE_FILE_MACHINE_AMD64)},
	} {
		must.Succeed(t, r.writeProgram(t.Context(), hello, c.platform))
		name, unpackFile := plugin, unpack
		if strings.HasSuffix(c.file, ".zip") {
			name, unpackFile = plugin+".exe", unzip
		}
		files := unpackFile(t, read(t, r, c.file))
		binary := bytes.NewReader(files[name])
		if binary.Len() == 0 {
			t.Errorf("%s: got files %q, want %s", c.file, slices.Sorted(maps.Keys(files)), name)
			continue
		}
		info, err := buildinfo.Read(binary)
		must.Succeedf(t, err, "%s", c.file)
		settings := map[string]string{}
		for _, setting := range info.Settings {
			settings[setting.Key] = setting.Value
		}
		if got := settings["GOOS"] + "/" + settings["GOARCH"]; got != c.platform || settings["CGO_ENABLED"] != "0" {
			t.Errorf("%s: got a binary of %s with CGO_ENABLED=%s, want a static one of %s", c.file, got, settings["CGO_ENABLED"], c.platform)
		}
		expect.Equalf(t, format(binary), c.format, "%s: binary in the format", c.file)
	}
}

// format returns the format of a binary and its processor.
func format(binary io.ReaderAt) string {
	if file, err := elf.NewFile(binary); err == nil {
		return "ELF " + file.Machine.String()
	}
	if file, err := macho.NewFile(binary); err == nil {
		return "Mach-O " + file.Cpu.String()
	}
	if file, err := pe.NewFile(binary); err == nil {
		return fmt.Sprintf("PE %#x", file.Machine)
	}
	return "unknown"
}

// unzip returns the files of a zip archive.
func unzip(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	must.Succeed(t, err)
	found := map[string][]byte{}
	for _, file := range archive.File {
		opened, err := file.Open()
		must.Succeed(t, err)
		if found[file.Name], err = io.ReadAll(opened); err != nil {
			t.Fatal(err)
		}
	}
	return found
}
