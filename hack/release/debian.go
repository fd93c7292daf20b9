package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/conclave-dev/conclave/hack/internal/archive"
)

// writePackage writes the Debian package of the agent, with the unit of systemd and the scripts in the folder debian.
// GitHub replaces the ~ of a Debian version in names of files, so the package has a name like the archives.
func (r *release) writePackage(ctx context.Context, p program, platform string) error {
	target, binary, err := r.compile(ctx, p, platform)
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return err
	}
	source := os.DirFS(filepath.Join(r.source, "hack", "release", "debian"))
	control, err := archive.Folder(source, "control")
	if err != nil {
		return err
	}
	data, err := archive.Folder(source, "data")
	if err != nil {
		return err
	}
	for i := range control {
		control[i].Executable = true
		control[i].Name = strings.TrimPrefix(control[i].Name, "control/")
	}
	for i := range data {
		data[i].Name = strings.TrimPrefix(data[i].Name, "data/")
	}
	data = append(data,
		archive.File{Name: "usr/bin/" + p.name, Executable: true, Content: binary},
		archive.File{Name: "usr/share/doc/" + p.name + "/copyright", Content: license})
	control = append(control, archive.File{Name: "control", Content: r.debianControl(p.name, target.Architecture, data)})

	content := bytes.NewBufferString("!<arch>\n")
	r.addMember(content, "debian-binary", []byte("2.0\n"))
	for _, member := range []struct {
		name  string
		files []archive.File
	}{{"control.tar.gz", control}, {"data.tar.gz", data}} {
		var packed bytes.Buffer
		if err := archive.TarGzip(&packed, r.created, withFolders(member.files)); err != nil {
			return err
		}
		r.addMember(content, member.name, packed.Bytes())
	}
	file := p.name + "_" + r.version + "_" + target.OS + "_" + target.Architecture + ".deb"
	return r.done(file, os.WriteFile(filepath.Join(r.output, file), content.Bytes(), 0o644))
}

// debianControl describes the package. A ~ makes a version older than the one without what follows.
func (r *release) debianControl(name, architecture string, data []archive.File) []byte {
	size := 0
	for _, file := range data {
		size += (len(file.Content) + 1023) / 1024
	}
	return fmt.Appendf(nil, `Package: %s
Version: %s
Architecture: %s
Maintainer: The maintainers of Conclave
Installed-Size: %d
Depends: systemd
Section: admin
Priority: optional
Homepage: %s
Description: elects the coordinator among processes
 The agent runs beside an application and takes part in elections for it.
 It works without Kubernetes. The unit conclave-agent reads the file
 /etc/conclave/agent.yaml.
`, name, strings.ReplaceAll(strings.TrimPrefix(r.version, "v"), "-", "~"), architecture, size, repository)
}

// withFolders names the files as dpkg does, and adds their folders, which dpkg needs in front of them.
func withFolders(files []archive.File) []archive.File {
	folders := map[string]bool{".": true}
	named := []archive.File{{Name: "./"}}
	for _, file := range files {
		for folder := path.Dir(file.Name); !folders[folder]; folder = path.Dir(folder) {
			folders[folder] = true
			named = append(named, archive.File{Name: "./" + folder + "/"})
		}
		file.Name = "./" + file.Name
		named = append(named, file)
	}
	return named
}

// addMember adds a file to an archive of ar.
func (r *release) addMember(to *bytes.Buffer, name string, content []byte) {
	fmt.Fprintf(to, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, r.created.Unix(), 0, 0, "100644", len(content))
	to.Write(content)
	if len(content)%2 == 1 {
		to.WriteByte('\n')
	}
}
