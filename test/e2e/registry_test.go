package e2e

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
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
	must.Succeed(t, err)
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
			must.Succeedf(t, err, "%s", archive)
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
		must.Succeed(c.t, err)
		listener, err := inNamespace(inside, func() (net.Listener, error) { return net.Listen("tcp", registryAddress) })
		inside.Close()
		must.Succeedf(c.t, err, "%s", node)
		server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(listener) }() // Ends with the listener.
		c.t.Cleanup(func() { _ = server.Close() })
	}
}

// addPython adds an image with the Python of this machine, and returns its name. A throwaway cluster can't pull one.
func (r registry) addPython(t *testing.T) string {
	t.Helper()
	put := func(content string) string {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content)))
		r[digest] = []byte(content)
		return digest
	}
	python := strings.Fields(run(t, "python3", "-c", "import sys, sysconfig; print(sys.executable, sysconfig.get_path('stdlib'))"))
	libraries := strings.Fields(run(t, "sh", "-c", "ldd "+python[0]+" "+python[1]+"/lib-dynload/*.so | grep -o '/[^ :]*' | sort -u"))
	archive := filepath.Join(t.TempDir(), "python.tar")
	run(t, "tar", slices.Concat([]string{"-cf", archive, "--dereference", "--hard-dereference", "--exclude=*-packages", "--exclude=test", "--exclude=config-*"}, python, libraries)...)
	files := readFile(t, archive)
	layer := put(files)
	config := fmt.Sprintf(`{"os":"linux","architecture":%q,"config":{"Env":["PATH=%s"]},"rootfs":{"type":"layers","diff_ids":[%q]}}`,
		runtime.GOARCH, filepath.Dir(python[0]), layer)
	return "localhost:5000/python@" + put(fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
		"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},
		"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}]}`, put(config), len(config), layer, len(files)))
}
