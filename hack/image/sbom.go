package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
)

// writeSBOM writes an SBOM in the JSON format of SPDX 2.3, from the build info of the binary.
func (r recipe) writeSBOM(file, binary, digest string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	document, err := json.MarshalIndent(r.sbom(info, fmt.Sprintf("%x", sha256.Sum256(content)), digest), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(document, '\n'), 0o644); err != nil {
		return fmt.Errorf("cannot write the SBOM: %w", err)
	}
	return nil
}

type object = map[string]any

const (
	documentID  = "SPDXRef-DOCUMENT"
	programID   = "SPDXRef-Program"
	binaryID    = "SPDXRef-Binary"
	noAssertion = "NOASSERTION"
)

// sbom lists the program, its binary, all its modules and the standard library.
func (r recipe) sbom(info *debug.BuildInfo, sum, digest string) object {
	program := module(info.Main.Path, r.Version, "")
	program["SPDXID"], program["name"], program["primaryPackagePurpose"] = programID, r.Title(), "APPLICATION"
	program["licenseDeclared"] = constantLabels["org.opencontainers.image.licenses"]
	program["sourceInfo"] = "built from " + info.Path + ", shipped in the image " + digest
	packages := []object{program, module("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, dependency := range info.Deps {
		switch replace := dependency.Replace; {
		case replace == nil:
		case strings.HasPrefix(replace.Path, "./"): // a folder of this repository, such as ./api
			dependency = &debug.Module{Path: dependency.Path, Version: r.Version}
		default:
			dependency = replace
		}
		packages = append(packages, module(dependency.Path, dependency.Version, dependency.Sum))
	}
	relationships := []object{relationship(documentID, "DESCRIBES", programID), relationship(programID,
		"CONTAINS", binaryID)}
	for _, p := range packages[1:] {
		relationships = append(relationships, relationship(programID, "DEPENDS_ON", p["SPDXID"]))
	}
	return object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": documentID, "name": r.Title(),
		// The namespace must be a function of the content and differ for different contents.
		"documentNamespace": "https://conclave.dev/spdx/" + r.Title() + "/" + strings.ReplaceAll(digest, ":", "-"),
		"creationInfo": object{
			"created": r.Created.UTC().Format("2006-01-02T15:04:05Z"), "creators": []string{"Tool: conclave-hack-image"},
		},
		"packages": packages, "relationships": relationships,
		"files": []object{{
			"SPDXID": binaryID, "fileName": "./" + r.Name(), "fileTypes": []string{"BINARY"},
			"checksums":        []object{{"algorithm": "SHA256", "checksumValue": sum}},
			"licenseConcluded": noAssertion, "copyrightText": noAssertion,
		}},
	}
}

func relationship(from, kind string, to any) object {
	return object{"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to}
}

var notInID = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

// module describes a Go module. The checksum in go.sum covers all files of the module. SPDX has no field for such a
// checksum, so it is part of sourceInfo. Vulnerability databases identify the module by its package URL (purl), which
// requires a lowercase path.
func module(path, version, sum string) object {
	locator := "pkg:golang/" + strings.ToLower(path)
	if version != "" {
		locator += "@" + url.QueryEscape(version)
	}
	m := object{
		"SPDXID": "SPDXRef-Module-" + notInID.ReplaceAllString(path+"-"+version, "-"), "name": path, "versionInfo": version,
		"primaryPackagePurpose": "LIBRARY", "filesAnalyzed": false,
		"externalRefs": []object{
			{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator},
		},
	}
	for _, key := range []string{"supplier", "downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText"} {
		m[key] = noAssertion
	}
	if sum != "" {
		m["sourceInfo"] = "go.sum " + sum
	}
	return m
}
