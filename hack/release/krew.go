package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/hack/internal/gobuild"
)

const repository = "https://github.com/conclave-dev/conclave"

// krewManifest has the fields of krew's format that the plugin needs.
type krewManifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// writeKrew writes the manifest by which kubectl krew installs the plugin from the archives of a GitHub release.
func (r *release) writeKrew() error {
	manifest := krewManifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   map[string]string{"name": "conclave"},
		Spec: krewSpec{
			Version:          r.version,
			Homepage:         repository,
			ShortDescription: "Inspect groups of pods that elect a coordinator",
			Description: "Shows the groups of Conclave, explains their elections, checks the installation,\n" +
				"adds agents to manifests, and simulates elections without a cluster.\n",
		},
	}
	for _, platform := range programs[0].platforms {
		target, err := gobuild.ParsePlatform(platform)
		if err != nil {
			return err
		}
		file, exe := r.archiveOf(plugin, target)
		sum, err := checksum(filepath.Join(r.output, file))
		if err != nil {
			return err
		}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, krewPlatform{
			Selector: krewSelector{map[string]string{"os": target.OS, "arch": target.Architecture}},
			URI:      r.download(file),
			SHA256:   sum,
			Bin:      plugin + exe,
		})
	}
	content, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return r.done("conclave.yaml", os.WriteFile(filepath.Join(r.output, "conclave.yaml"), content, 0o644))
}

// download returns where GitHub serves a file of the release.
func (r *release) download(file string) string {
	return repository + "/releases/download/" + r.version + "/" + file
}

func checksum(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}
