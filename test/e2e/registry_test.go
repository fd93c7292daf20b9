package e2e

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// registryAddress is the address of the registry on each node. Runtimes talk plain HTTP to a registry on their own
// machine.
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

// addPython adds an image with the Python of this machine, and returns its name. A cluster without a registry can't
// pull one.
func (r registry) addPython(t *testing.T) string {
	t.Helper()
	put := func(content string) string {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content)))
		r[digest] = []byte(content)
		return digest
	}
	python := strings.Fields(
		run(t, "python3", "-c", "import sys, sysconfig; print(sys.executable, sysconfig.get_path('stdlib'))"))
	libraries := strings.Fields(
		run(t, "sh", "-c", "ldd "+python[0]+" "+python[1]+"/lib-dynload/*.so | grep -o '/[^ :]*' | sort -u"))
	archive := filepath.Join(t.TempDir(), "python.tar")
	run(t, "tar", slices.Concat([]string{
		"-cf", archive, "--dereference", "--hard-dereference", "--exclude=*-packages", "--exclude=test", "--exclude=config-*",
	}, python, libraries)...)
	files := readFile(t, archive)
	layer := put(files)
	config := fmt.Sprintf(
		`{"os":"linux","architecture":%q,"config":{"Env":["PATH=%s"]},"rootfs":{"type":"layers","diff_ids":[%q]}}`,
		runtime.GOARCH, filepath.Dir(python[0]), layer)
	return "localhost:5000/python@" +
		put(fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
		"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},
		"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}]}`, put(config),
			len(config), layer, len(files)))
}

// work is what a program has written in one tenure.
type work struct {
	pod         string
	token       uint64
	first, last time.Time
}

var programWork = regexp.MustCompile(`(?m)^(\S+) settle: (?:leads|works) with token (\d+)$`)

// testProgram deletes the pod in which the program of the sample runs.
func testProgram(e env) {
	before := e.awaitProgram(0)
	last := before[len(before)-1]
	deleted := make(chan []work)
	go func() { deleted <- e.workIn(last.pod, "--follow") }()
	e.kubectl("delete", "pod", last.pod, "--namespace", samplesNamespace, "--wait=false")
	all := e.awaitProgram(last.token)
	stopped := <-deleted
	if len(stopped) == 0 {
		e.t.Errorf("got no work in the log of %s", last.pod)
	}
	all = append(slices.DeleteFunc(all, func(w work) bool { return w.pod == last.pod }), stopped...)
	slices.SortFunc(all, byToken)
	for i := 1; i < len(all); i++ {
		if was, is := all[i-1], all[i]; !is.first.After(was.last) {
			e.t.Errorf("got work in %s from %v on, while the program still worked in %s until %v", is.pod,
				is.first, was.pod, was.last)
		}
	}
	e.kubectl("delete", "--namespace", samplesNamespace, "-f", e.samples()+"/singleton.yaml", "--wait=false")
}

// awaitProgram waits until the program works in the coordinator's pod, with a token above another one. It returns what
// is in the logs of all pods, in the order of tokens.
func (e env) awaitProgram(above uint64) (all []work) {
	e.t.Helper()
	e.waitUntil(defaultTimeout, "the program works in the coordinator's pod", func() bool {
		var pods corev1.PodList
		e.list(samplesNamespace, map[string]string{"app": "settle"}, &pods)
		all = nil
		for i := range pods.Items {
			all = append(all, e.workIn(pods.Items[i].Name)...)
		}
		slices.SortFunc(all, byToken)
		if len(all) == 0 {
			return false
		}
		newest := all[len(all)-1]
		return newest.token > above && newest.last.After(newest.first) && newest.pod == e.group("settle").coordinator()
	})
	return all
}

func byToken(a, b work) int { return cmp.Compare(a.token, b.token) }

func (e env) workIn(pod string, flags ...string) (all []work) {
	e.t.Helper()
	output, err := e.tryKubectl(
		append([]string{"logs", "--timestamps", "--namespace", samplesNamespace, pod, "-c", "application"}, flags...)...)
	if err != nil {
		return nil // It hasn't started, or is gone.
	}
	for _, line := range programWork.FindAllStringSubmatch(output, -1) {
		at, timeErr := time.Parse(time.RFC3339Nano, line[1])
		token, err := strconv.ParseUint(line[2], 10, 64)
		if timeErr != nil || err != nil {
			e.t.Errorf("%s has logged %q: %v, %v", pod, line[0], timeErr, err)
		}
		if n := len(all); n == 0 || all[n-1].token != token {
			all = append(all, work{pod, token, at, at})
		}
		all[len(all)-1].last = at
	}
	return all
}
