package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// TestClientsCanBeImported imports the packages as they are in a release.
func TestClientsCanBeImported(t *testing.T) {
	r := newRelease(t, root)
	r.version = "v0.2.0-rc.1"
	must.Succeed(t, r.writeClients())
	run := func(t *testing.T, folder, environment string, command ...string) string {
		t.Helper()
		if _, err := exec.LookPath(command[0]); err != nil {
			need.Skip(t, command[0])
		}
		c := exec.CommandContext(t.Context(), command[0], command[1:]...)
		c.Dir, c.Env = folder, append(os.Environ(), environment)
		output, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", command, err, output)
		}
		return strings.TrimSpace(string(output))
	}
	t.Run("python", func(t *testing.T) {
		// Python imports from a zip archive, too.
		got := run(t, r.output,
			"PYTHONPATH="+filepath.Join(r.output, "conclave-0.2.0rc1-py3-none-any.whl"), "python3", "-c", `
import base64, conclave.aio, hashlib, importlib.metadata
package = importlib.metadata.distribution("conclave")
for file in package.files:
    if file.hash:
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_binary()).digest()).rstrip(b"=").decode()
        assert digest == file.hash.value, file
print(conclave.run.__name__, conclave.aio.run.__name__, package.version, package.metadata["Requires-Python"], len(package.files))
for key in ["License", "Keywords", "Classifier", "Project-URL"]:
    print(key, len(package.metadata.get_all(key)), package.metadata[key])
print(package.metadata.get_payload().splitlines()[0])`)
		expect.Equal(t, got, `run run 0.2.0rc1 >=3.9 10
License 1 Apache-2.0
Keywords 1 leader-election,kubernetes,high-availability,fencing,conclave
Classifier 8 Development Status :: 3 - Alpha
Project-URL 3 Homepage, https://github.com/conclave-dev/conclave/blob/main/docs/clients.md
# Conclave client for Python`)
	})
	t.Run("typescript", func(t *testing.T) {
		folder := t.TempDir()
		run(t, folder, "", "tar", "-xzf", filepath.Join(r.output, "conclave-dev-client-0.2.0-rc.1.tgz"))
		got := run(t, folder, "", "node", "-e", `
const found = require("./package/package.json"), files = require("fs").readdirSync("package");
import("./package/index.js").then((m) => console.log(Object.keys(m).join(), found.version, found.repository.directory, ...files))`)
		expect.Equal(t, got, "AgentError,TenureEnded,health,leader,run,watch 0.2.0-rc.1 clients/typescript "+
			"LICENSE README.md index.d.ts index.js package.json")
	})
}

// TestHeadlampPluginIsSmall: Headlamp provides all libraries, so the plugin must not contain them.
func TestHeadlampPluginIsSmall(t *testing.T) {
	r := newRelease(t, root)
	r.version = "v0.2.0-rc.1"
	must.Succeed(t, r.writeHeadlamp(t.Context()))
	const name = "conclave-headlamp-0.2.0-rc.1.tar.gz"
	packed := read(t, r, name)
	files := unpack(t, packed)
	const most = 300 << 10
	if size := len(files["conclave/main.js"]); len(files) != 2 || size == 0 || size > most {
		t.Errorf("got %d files, and main.js of %d bytes, want two, and at most %d bytes", len(files), size, most)
	}
	// Headlamp refuses a plugin that doesn't say for which version of its package it is.
	for _, want := range []string{`"name": "conclave"`, `"version": "0.2.0-rc.1"`, `"@kinvolk/headlamp-plugin": "`} {
		expect.Containsf(t, string(files["conclave/package.json"]), want, "package.json")
	}
	var metadata struct {
		Version     string
		Annotations map[string]string
	}
	must.Succeed(t, yaml.Unmarshal(read(t, r, "artifacthub-pkg.yml"), &metadata))
	url, sum := metadata.Annotations["headlamp/plugin/archive-url"],
		metadata.Annotations["headlamp/plugin/archive-checksum"]
	if metadata.Version != "0.2.0-rc.1" || url != r.download(name) ||
		sum != fmt.Sprintf("sha256:%x", sha256.Sum256(packed)) {
		t.Errorf("got metadata %+v, want those of %s", metadata, r.download(name))
	}
}

func TestProvenanceNamesFilesSourceAndBuilder(t *testing.T) {
	r := newRelease(t, root)
	r.commit = strings.Repeat("a", 40)
	writeArchives(t, r)
	files := names(t, r.output)
	must.Succeed(t, r.writeProvenance())
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []subject
		Predicate     struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   struct{ Version, Registry string }
				ResolvedDependencies []struct {
					URI    string
					Digest struct{ GitCommit string }
				}
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	must.Succeed(t, json.Unmarshal(read(t, r, "provenance.json"), &statement))
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("got statement %s with predicate %s", statement.Type, statement.PredicateType)
	}
	if len(files) == 0 || len(statement.Subject) != len(files) {
		t.Fatalf("got %d subjects, want the %d files", len(statement.Subject), len(files))
	}
	for i, file := range files {
		want, err := checksum(filepath.Join(r.output, file))
		if got := statement.Subject[i]; err != nil || got.Name != file || got.Digest["sha256"] != want {
			t.Errorf("got subject %+v (%v), want %s with checksum %s", got, err, file, want)
		}
	}
	build := statement.Predicate.BuildDefinition
	if build.ExternalParameters.Version != r.version ||
		build.ExternalParameters.Registry != r.registry || build.BuildType == "" {
		t.Errorf("got build %+v, want the version and the registry", build)
	}
	if source := build.ResolvedDependencies[0]; source.URI != "git+"+repository+"@refs/tags/v0.1.0" ||
		source.Digest.GitCommit != r.commit {
		t.Errorf("got source %+v, want the tag and the commit", source)
	}
	// SECURITY.md tells users to expect this identity in the certificate.
	security, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if id := statement.Predicate.RunDetails.Builder.ID; err != nil || id == "" ||
		!strings.Contains(string(security), "--certificate-identity "+id) {
		t.Errorf("got builder %q (%v), want the identity in SECURITY.md", id, err)
	}
}

func TestChangedSourcesHaveNoCommit(t *testing.T) {
	r := newRelease(t, t.TempDir())
	git := func(arguments ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git",
			append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, arguments...)...)
		command.Dir = r.source
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, output)
		}
	}
	file := filepath.Join(r.source, "file")
	write := func(content string) {
		t.Helper()
		must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
	}
	git("init", "--quiet")
	write("1")
	git("add", "file")
	git("commit", "--quiet", "--message", "1")
	git("tag", "v0.1.0")
	if err := r.readCommit(t.Context()); err != nil || !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(r.commit) {
		t.Errorf("got commit %q (%v), want a hash", r.commit, err)
	}
	r.commit = ""
	write("22")
	if err := r.readCommit(t.Context()); err != nil || r.commit != "" {
		t.Errorf("got commit %q (%v) of changed sources, want none", r.commit, err)
	}
	r.source = t.TempDir()
	if err := r.readCommit(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "must be a clone of the repository") {
		t.Errorf("got error %v without a repository, want one that asks for a clone", err)
	}
}

// TestArchivesHaveBinariesOfTheirPlatform, by their build info, and by the format that the operating system and the
// processor accept.
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
			t.Errorf("%s: got a binary of %s with CGO_ENABLED=%s, want a static one of %s", c.file, got,
				settings["CGO_ENABLED"], c.platform)
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
