package dashboard

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// headlamp is a server with the frontend of Headlamp, the plugin, and an API server as the cluster "main".
type headlamp struct {
	client.Client

	port   int
	agents *agentcluster.Cluster
	leader string
	// user forwards requests to the API server, as the user who is logged in.
	user          atomic.Pointer[httputil.ReverseProxy]
	admin, viewer *httputil.ReverseProxy
	// answer, if it isn't nil, is that of the first agent.
	answer atomic.Pointer[string]
}

func startHeadlamp(t *testing.T) *headlamp {
	t.Helper()
	environment := apiserver.Start(t)
	folder := t.TempDir()
	build(t, headlampSource+"/build", folder+"/plugin")
	arguments := []string{
		"esbuild", headlampSource + "/test/host.jsx", "--bundle", "--outfile=" + folder + "/host.js",
		"--define:process.env.NODE_ENV=\"production\"",
		"--define:import.meta.env={}", "--define:global=globalThis", "--loader:.svg=dataurl", "--log-level=error",
	}
	for _, module := range absent {
		arguments = append(arguments, "--alias:"+module+"="+headlampSource+"/test/absent.js")
	}
	build(t, "../../../hack/tools/tool", arguments...)

	h := &headlamp{}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		must.Succeed(t, add(scheme))
	}
	_, err := envtest.InstallCRDs(environment.Config,
		envtest.CRDInstallOptions{Paths: []string{"../../../config/crd/bases"}})
	must.Succeed(t, err)
	h.Client, err = client.New(environment.Config, client.Options{Scheme: scheme})
	must.Succeed(t, err)
	h.admin = forward(t, environment.Config)
	viewer, err := environment.AddUser(envtest.User{Name: "viewer"}, nil)
	must.Succeed(t, err)
	h.viewer = forward(t, viewer.Config())
	h.user.Store(h.admin)
	h.fill(t)

	mux := http.NewServeMux()
	mux.HandleFunc("/clusters/main/", func(w http.ResponseWriter, r *http.Request) {
		http.StripPrefix("/clusters/main", h.user.Load()).ServeHTTP(w, r)
	})
	mux.HandleFunc("/plugins", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `[{"path":"plugins/conclave","type":"user","name":"conclave"}]`)
	})
	mux.Handle("/plugins/conclave/", http.StripPrefix("/plugins/conclave/", http.FileServer(http.Dir(folder+"/plugin"))))
	mux.Handle("/host.js", http.FileServer(http.Dir(folder)))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<!doctype html><html lang="en"><title>Headlamp</title><link rel="icon" href="data:,"><div `+
			`id="root"></div><script src="/host.js"></script></html>`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	h.port = portOf(t, server)
	return h
}

func portOf(t *testing.T, server *httptest.Server) int {
	t.Helper()
	address, ok := server.Listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("got address %s, want one of TCP", server.Listener.Addr())
	}
	return address.Port
}

// build runs a command that builds something.
func build(t *testing.T, program string, arguments ...string) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, output)
	}
}

// forward returns a proxy that sends requests to the API server with the credentials of a user.
func forward(t *testing.T, config *rest.Config) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(config.Host)
	must.Succeed(t, err)
	tls, err := rest.TLSConfigFor(config)
	must.Succeed(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{TLSClientConfig: tls}
	return proxy
}

// fill creates groups, and a node with the pods of real agents.
func (h *headlamp) fill(t *testing.T) {
	t.Helper()
	b := &browser{t: t}
	h.agents, h.leader = startAgents(b)
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		options, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		// The path is /portForward/NAMESPACE/POD.
		portforward.ServePortForward(w, r, h, filepath.Base(r.URL.Path), "", options, time.Minute, time.Minute,
			portforward.SupportedProtocols)
	}))
	t.Cleanup(kubelet.Close)
	for _, namespace := range []string{"bank", "shop"} {
		must.Succeed(t, h.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	must.Succeed(t, h.Create(t.Context(), node))
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(portOf(t, kubelet))
	must.Succeed(t, h.Status().Update(t.Context(), node))
	for _, name := range h.agents.Names() {
		must.Succeed(t, h.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		}))
	}
	for _, g := range []*v1.ElectionGroup{
		adopting(), named("bank", "broken", ledger("Bully", -1)), named("bank", "ledger", ledger("StatusTable", 3)),
		named("bank", "ring", ledger("RingSkip", 4)),
		named("shop", "ledger", groupOf(h.agents.Names(), h.leader)),
	} {
		if g.Namespace == "shop" {
			g.Spec.Service = &v1.CoordinatorService{Name: "app", Via: v1.ViaAgents, Ports: []v1.ServicePort{{Port: 80}}}
		}
		h.set(t, g)
	}
	must.Succeed(t, h.Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger.1"},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "conclave.dev/v1", Kind: "ElectionGroup", Namespace: "bank", Name: "ledger",
		},
		Reason: "CoordinatorChanged", Message: "ledger-3 leads", Type: corev1.EventTypeNormal,
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}))
	must.Succeed(t, h.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		Rules: []rbacv1.PolicyRule{
			{
				APIGroups: []string{"conclave.dev"}, Resources: []string{"electiongroups"}, Verbs: []string{"get", "list", "watch"},
			},
			{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"get"}},
		},
	}))
	must.Succeed(t, h.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "viewer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "viewer"}},
	}))
}

// set creates a group with its status, or changes the status.
func (h *headlamp) set(t *testing.T, g *v1.ElectionGroup) {
	t.Helper()
	status := g.Status
	if list := status.Protocol.MemberList; list != nil && list.Previous == nil {
		list.Version = 1
	}
	for i := range status.Processes {
		if p := &status.Processes[i]; g.Namespace == "shop" {
			p.Node, p.Zone = "node-1", "west"
		}
	}
	existing := &v1.ElectionGroup{}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(g), existing); err == nil {
		g = existing
	} else {
		if len(g.Spec.Members) == 0 {
			for _, p := range status.Processes {
				g.Spec.Members = append(g.Spec.Members, v1.Member{Pod: p.Pod, Priority: p.Priority})
			}
		}
		must.Succeed(t, h.Create(t.Context(), g))
	}
	g.Status = status
	must.Succeed(t, h.Status().Update(t.Context(), g))
}

// PortForward connects to the local API of an agent.
func (h *headlamp) PortForward(ctx context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	if port != 7374 || !slices.Contains(h.agents.Names(), pod) {
		return fmt.Errorf("nothing listens on port %d of %s", port, pod)
	}
	if answer := h.answer.Load(); answer != nil && pod == h.agents.Names()[0] {
		_, err := fmt.Fprintf(stream, "HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(*answer), *answer)
		return err
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.agents.Agent(pod).API)
	if err != nil {
		return err
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
	}()
	_, err = io.Copy(stream, connection)
	return err
}
