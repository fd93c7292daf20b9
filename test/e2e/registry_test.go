package e2e

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// registryAddress is the address of the registry on each node. Runtimes talk plain HTTP to a registry on their own machine.
const registryAddress = "127.0.0.1:5000"

// registry serves the content of OCI archives to clients that pull by digest. Its keys are digests.
type registry map[string][]byte

func (r registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.URL.Path == "/v2/" {
		return
	}
	content, ok := r[request.URL.Path[strings.LastIndex(request.URL.Path, "/")+1:]]
	if !ok {
		http.NotFound(w, request)
		return
	}
	if strings.Contains(request.URL.Path, "/manifests/") {
		var manifest struct{ MediaType string }
		if json.Unmarshal(content, &manifest) != nil || manifest.MediaType == "" {
			http.Error(w, "not a manifest", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", manifest.MediaType)
	}
	http.ServeContent(w, request, "", time.Time{}, strings.NewReader(string(content)))
}

// add adds the images of an OCI archive.
func (r registry) add(t *testing.T, archive string) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for files := tar.NewReader(file); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
		if digest, ok := strings.CutPrefix(header.Name, "blobs/sha256/"); ok {
			content, err := io.ReadAll(files)
			if err != nil {
				t.Fatalf("%s: %v", archive, err)
			}
			r["sha256:"+digest] = content
		}
	}
}

// serve serves the registry on all nodes of a cluster, until the test ends.
func (r registry) serve(c *cluster) {
	c.t.Helper()
	nodes := c.networks()
	if len(nodes) == 0 {
		c.t.Fatal("found no network namespaces of nodes")
	}
	for _, node := range nodes {
		inside, err := os.Open(node)
		if err != nil {
			c.t.Fatal(err)
		}
		listener, err := inNamespace(inside, func() (net.Listener, error) { return net.Listen("tcp", registryAddress) })
		inside.Close()
		if err != nil {
			c.t.Fatalf("%s: %v", node, err)
		}
		server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(listener) }() // Ends with the listener.
		c.t.Cleanup(func() { _ = server.Close() })
	}
}
