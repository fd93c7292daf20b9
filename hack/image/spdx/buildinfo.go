package spdx

import (
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// Subject is the program that the document describes, as far as its build info doesn't say.
type Subject struct {
	Name        string
	Version     string
	License     string // an SPDX licence identifier
	File        string // the binary, as the image has it
	FileSHA256  string
	ImageDigest string
	Created     time.Time
}

const (
	documentID = "SPDXRef-DOCUMENT"
	programID  = "SPDXRef-Program"
	binaryID   = "SPDXRef-Binary"
)

// FromBuildInfo lists the program, the binary, each module in it and the standard library.
func FromBuildInfo(info *debug.BuildInfo, s Subject) Document {
	d := Document{
		SPDXVersion: "SPDX-2.3",
		DataLicense: "CC0-1.0",
		ID:          documentID,
		Name:        s.Name,
		// It must be unique to this content, and the same for the same content.
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
		if dependency.Replace != nil {
			dependency = dependency.Replace
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

// module describes a Go module. Its checksum is the one of go.sum, over the module's files and not over any one of them,
// which SPDX has no field for.
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

// packageURL is the name that vulnerability databases know a Go module by; a path in it is in lower case.
func packageURL(path, version string) string {
	locator := "pkg:golang/" + strings.ToLower(path)
	if version != "" {
		locator += "@" + url.QueryEscape(version)
	}
	return locator
}
