package spdx

import (
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// Subject has the properties of the program that its build info doesn't have.
type Subject struct {
	Name        string
	Version     string
	License     string // an SPDX license identifier
	File        string // the path of the binary in the image
	FileSHA256  string
	ImageDigest string
	Created     time.Time
}

const (
	documentID = "SPDXRef-DOCUMENT"
	programID  = "SPDXRef-Program"
	binaryID   = "SPDXRef-Binary"
)

// FromBuildInfo returns a document that lists the program, its binary, all its modules and the standard library.
func FromBuildInfo(info *debug.BuildInfo, s Subject) Document {
	d := Document{
		SPDXVersion: "SPDX-2.3",
		DataLicense: "CC0-1.0",
		ID:          documentID,
		Name:        s.Name,
		// The namespace must be a function of the content and differ for different contents.
		DocumentNamespace: "https://conclave.dev/spdx/" + s.Name + "/" + strings.ReplaceAll(s.ImageDigest, ":", "-"),
		CreationInfo: CreationInfo{
			Created:  s.Created.UTC().Format("2006-01-02T15:04:05Z"),
			Creators: []string{"Tool: conclave-hack-image"},
		},
		Packages: []Package{program(info, s)},
		Files: []File{{
			ID: binaryID, FileName: s.File, FileTypes: []string{"BINARY"},
			Checksums:        []Checksum{{Algorithm: "SHA256", Value: s.FileSHA256}},
			LicenseConcluded: noAssertion, CopyrightText: noAssertion,
		}},
		Relationships: []Relationship{
			{documentID, "DESCRIBES", programID},
			{programID, "CONTAINS", binaryID},
		},
	}
	d.add(module("stdlib", strings.TrimPrefix(info.GoVersion, "go"), ""))
	for _, dependency := range info.Deps {
		switch replace := dependency.Replace; {
		case replace == nil:
		case strings.HasPrefix(replace.Path, "./"): // a folder of this repository, such as ./api
			dependency = &debug.Module{Path: dependency.Path, Version: s.Version}
		default:
			dependency = replace
		}
		d.add(module(dependency.Path, dependency.Version, dependency.Sum))
	}
	return d
}

func (d *Document) add(p Package) {
	d.Packages = append(d.Packages, p)
	d.Relationships = append(d.Relationships, Relationship{programID, "DEPENDS_ON", p.ID})
}

func program(info *debug.BuildInfo, s Subject) Package {
	p := module(info.Main.Path, s.Version, "")
	p.ID, p.Name, p.PrimaryPackagePurpose, p.LicenseDeclared = programID, s.Name, "APPLICATION", s.License
	p.SourceInfo = "built from " + info.Path
	if s.ImageDigest != "" {
		p.SourceInfo += ", shipped in the image " + s.ImageDigest
	}
	return p
}

// module describes a Go module. The checksum in go.sum covers all files of the module. SPDX has no field for such a
// checksum, so it is part of SourceInfo.
func module(path, version, sum string) Package {
	p := Package{
		ID: "SPDXRef-Module-" + elementID(path+"-"+version), Name: path, VersionInfo: version,
		PrimaryPackagePurpose: "LIBRARY", Supplier: noAssertion, DownloadLocation: noAssertion,
		LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, CopyrightText: noAssertion,
		ExternalRefs: []ExternalRef{{"PACKAGE-MANAGER", "purl", packageURL(path, version)}},
	}
	if sum != "" {
		p.SourceInfo = "go.sum " + sum
	}
	return p
}

var notInID = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

func elementID(s string) string { return notInID.ReplaceAllString(s, "-") }

// packageURL returns the package URL (purl) of a Go module, by which vulnerability databases identify it. It requires a
// lowercase path.
func packageURL(path, version string) string {
	locator := "pkg:golang/" + strings.ToLower(path)
	if version != "" {
		locator += "@" + url.QueryEscape(version)
	}
	return locator
}
