// Package spdx creates a software bill of materials (SBOM) in the JSON format of SPDX 2.3 from the build info of a Go
// binary. It supports only the part of the format that a Go binary needs.
package spdx

import "encoding/json"

const noAssertion = "NOASSERTION"

// Document is an SPDX document.
type Document struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	ID                string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      CreationInfo   `json:"creationInfo"`
	Packages          []Package      `json:"packages"`
	Files             []File         `json:"files"`
	Relationships     []Relationship `json:"relationships"`
}

// CreationInfo has the date and the creators of a document.
type CreationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// Package is the program, one of its modules, or the standard library.
type Package struct {
	ID                    string        `json:"SPDXID"`
	Name                  string        `json:"name"`
	VersionInfo           string        `json:"versionInfo"`
	PrimaryPackagePurpose string        `json:"primaryPackagePurpose"`
	Supplier              string        `json:"supplier"`
	DownloadLocation      string        `json:"downloadLocation"`
	FilesAnalyzed         bool          `json:"filesAnalyzed"`
	LicenseConcluded      string        `json:"licenseConcluded"`
	LicenseDeclared       string        `json:"licenseDeclared"`
	CopyrightText         string        `json:"copyrightText"`
	SourceInfo            string        `json:"sourceInfo,omitempty"`
	ExternalRefs          []ExternalRef `json:"externalRefs,omitempty"`
}

// ExternalRef is an identifier of a package in another system.
type ExternalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

// File is the binary.
type File struct {
	ID               string     `json:"SPDXID"`
	FileName         string     `json:"fileName"`
	FileTypes        []string   `json:"fileTypes"`
	Checksums        []Checksum `json:"checksums"`
	LicenseConcluded string     `json:"licenseConcluded"`
	CopyrightText    string     `json:"copyrightText"`
}

// Checksum is the checksum of a file.
type Checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

// Relationship connects two elements by their IDs.
type Relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// JSON returns the document as the content of a file.
func (d Document) JSON() ([]byte, error) {
	content, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(content, '\n'), nil
}
