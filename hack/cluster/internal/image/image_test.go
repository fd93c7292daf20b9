package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestImagesAreReproducibleAndLoadable(t *testing.T) {
	var first, second bytes.Buffer
	for _, buffer := range []*bytes.Buffer{&first, &second} {
		if err := Write(buffer, "example.com/a:1", []byte("program")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("got different images for the same program")
	}
	files := unpack(t, &first)
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("got manifest %s, error %v", files["manifest.json"], err)
	}
	if manifest[0].RepoTags[0] != "example.com/a:1" {
		t.Errorf("got tags %v, want example.com/a:1", manifest[0].RepoTags)
	}
	layer := files[manifest[0].Layers[0]]
	var config struct {
		Config struct{ User string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(files[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	if config.RootFS.DiffIDs[0] != "sha256:"+digest(layer) {
		t.Errorf("got layer %s in the config, want the digest of the layer", config.RootFS.DiffIDs[0])
	}
	if config.Config.User == "" || strings.HasPrefix(config.Config.User, "0") {
		t.Errorf("got user %q, want a user other than root", config.Config.User)
	}
	if program := unpack(t, bytes.NewReader(layer))["program"]; string(program) != "program" {
		t.Errorf("got program %q", program)
	}
}

func unpack(t *testing.T, source io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	reader := tar.NewReader(source)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}
