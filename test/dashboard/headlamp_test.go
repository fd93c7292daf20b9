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
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
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
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

const headlampSource = "../../clients/headlamp"

// absent are the modules of Headlamp that aren't installed, because the pages of the plugin don't show what uses them.
var absent = strings.Fields(`cronstrue/i18n @xyflow/react/dist/base.css @xyflow/react @xterm/xterm/css/xterm.css @xterm/xterm @xterm/addon-fit
	@xterm/addon-search elkjs/lib/elk-api elkjs/lib/elk-worker.min.js?url @mui/lab @mui/x-tree-view/TreeItem @mui/x-tree-view/TreeView recharts
	@monaco-editor/react monaco-editor @apidevtools/swagger-parser fuse.js jsep jsonpath-plus react-dropzone`)

// TestHeadlampPlugin uses the plugin as users of Headlamp do. Its requests reach a real API server, and by the kubelet's code for
// forwarded ports real agents.
func TestHeadlampPlugin(t *testing.T) {
	if _, err := os.Stat(headlampSource + "/node_modules"); err != nil {
		need.Skip(t, "the packages of the Headlamp plugin: run npm ci --ignore-scripts in clients/headlamp")
	}
	h := startHeadlamp(t)
	b := start(t) // It ends first, and with it its requests to the API server.
	b.port = h.port
	b.device(1280, 900, false)
	for _, part := range []struct {
		name string
		run  func(*browser, *headlamp)
	}{
		{"the list", headlampList},
		{"a group", headlampGroup},
		{"the nodes", headlampNodes},
		{"the coordinator steps down", headlampStepDown},
	} {
		if !t.Run(part.name, func(t *testing.T) {
			b.t = t
			part.run(b, h)
			b.ignoreErrors("./locales/en/", "/apis/apiextensions.k8s.io/v1beta1/") // Headlamp looks for both, and does without.
			b.expectNoErrors()
		}) {
			break // The next part would fail for the same reason.
		}
	}
}

// headlamp is a server with the frontend of Headlamp, the plugin, and an API server as the cluster "main".
type headlamp struct {
	client.Client

	port   int
	agents *agentcluster.Cluster
	leader string
	// user forwards requests to the API server, as the user who is logged in.
	user          atomic.Pointer[httputil.ReverseProxy]
	admin, viewer *httputil.ReverseProxy
}

func startHeadlamp(t *testing.T) *headlamp {
	t.Helper()
	environment := apiserver.Start(t)
	folder := t.TempDir()
	build(t, headlampSource+"/build", folder+"/plugin")
	arguments := []string{
		"esbuild", headlampSource + "/test/host.jsx", "--bundle", "--outfile=" + folder + "/host.js", "--define:process.env.NODE_ENV=\"production\"",
		"--define:import.meta.env={}", "--define:global=globalThis", "--loader:.svg=dataurl", "--log-level=error",
	}
	for _, module := range absent {
		arguments = append(arguments, "--alias:"+module+"="+headlampSource+"/test/absent.js")
	}
	build(t, "../../hack/tools/tool", arguments...)

	h := &headlamp{}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		must(t, add(scheme))
	}
	_, err := envtest.InstallCRDs(environment.Config, envtest.CRDInstallOptions{Paths: []string{"../../config/crd/bases"}})
	must(t, err)
	h.Client, err = client.New(environment.Config, client.Options{Scheme: scheme})
	must(t, err)
	h.admin = forward(t, environment.Config)
	viewer, err := environment.AddUser(envtest.User{Name: "viewer"}, nil)
	must(t, err)
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
		_, _ = io.WriteString(w, `<!doctype html><html lang="en"><title>Headlamp</title><link rel="icon" href="data:,"><div id="root"></div><script src="/host.js"></script></html>`)
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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
	must(t, err)
	tls, err := rest.TLSConfigFor(config)
	must(t, err)
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
		portforward.ServePortForward(w, r, h, filepath.Base(r.URL.Path), "", options, time.Minute, time.Minute, portforward.SupportedProtocols)
	}))
	t.Cleanup(kubelet.Close)
	for _, namespace := range []string{"bank", "shop"} {
		must(t, h.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	must(t, h.Create(t.Context(), node))
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(portOf(t, kubelet))
	must(t, h.Status().Update(t.Context(), node))
	for _, name := range h.agents.Names() {
		must(t, h.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		}))
	}
	for _, g := range []*v1.ElectionGroup{
		adopting(), named("bank", "broken", ledger("Bully", -1)), named("bank", "ledger", ledger("StatusTable", 3)), named("bank", "ring", ledger("RingSkip", 4)),
		named("shop", "ledger", groupOf(h.agents.Names(), h.leader)),
	} {
		h.set(t, g)
	}
	must(t, h.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "bank", Name: "ledger.1"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "conclave.dev/v1", Kind: "ElectionGroup", Namespace: "bank", Name: "ledger"},
		Reason:         "CoordinatorChanged", Message: "ledger-3 leads", Type: corev1.EventTypeNormal,
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}))
	must(t, h.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"conclave.dev"}, Resources: []string{"electiongroups"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"get"}},
		},
	}))
	must(t, h.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "viewer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "viewer"}},
	}))
}

// set creates a group with its status, or changes the status.
func (h *headlamp) set(t *testing.T, g *v1.ElectionGroup) {
	t.Helper()
	status := g.Status
	if list := status.MemberList; list != nil && list.Previous == nil {
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
		must(t, h.Create(t.Context(), g))
	}
	g.Status = status
	must(t, h.Status().Update(t.Context(), g))
}

// PortForward connects to the local API of an agent.
func (h *headlamp) PortForward(ctx context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	if port != 7374 || !slices.Contains(h.agents.Names(), pod) {
		return fmt.Errorf("nothing listens on port %d of %s", port, pod)
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

// rows returns the rows of a table on the page, whose cells are separated by |.
func (h *headlamp) rows(b *browser, title string) (rows []string) {
	b.t.Helper()
	b.run("read the table", chromedp.Evaluate(fmt.Sprintf(`[...[...document.querySelectorAll("main table")].find((t) => t.tHead?.innerText.includes(%q))?.tBodies[0].rows ?? []]
		.map((row) => [...row.cells].map((cell) => cell.innerText.trim()).join("|"))`, title), &rows))
	return rows
}

// button returns an expression for the button with this text.
func button(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("button")].findLast((button) => button.innerText.startsWith(%q))`, text)
}

func press(b *browser, text string) {
	b.t.Helper()
	b.await(button(text))
	b.run("press "+text, chromedp.Evaluate(button(text)+".click()", nil))
}

func headlampList(b *browser, h *headlamp) {
	b.open("c/main/conclave/groups")
	b.await(`document.querySelectorAll("main tbody tr").length === 5`)
	want := []string{
		"broken|bank|Unavailable||False|Healthy|0 of 5|Bully|", "ledger|bank|Degraded|ledger-3|True|Healthy|4 of 5|StatusTable|",
		"adopting|bank|Healthy|ledger-4|True|Healthy|5 of 5|Bully|", "ring|bank|Healthy|ledger-4|True|Healthy|5 of 5|RingSkip|",
		"ledger|shop|Healthy|" + h.leader + "|True|Healthy|3 of 3|StatusTable|",
	}
	got := h.rows(b, "Coordinator")
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		b.t.Errorf("got rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	b.screenshot("headlamp-list.png")
	b.t.Log("a group that fails is the first, without reloading the page")
	failed := adopting()
	failed.Status.Coordinator, failed.Status.Conditions = nil, ledger("Bully", -1).Status.Conditions
	h.set(b.t, failed)
	b.await(`document.querySelector("main tbody tr").innerText.includes("adopting")`)
	h.set(b.t, adopting())
	b.click(`main a[href$="/conclave/groups/bank/ring"]`)
	b.await(`document.querySelector("h1")?.innerText.includes("ring")`)
}

func headlampGroup(b *browser, h *headlamp) {
	b.open("c/main/conclave/groups/bank/ledger")
	b.await(`document.querySelector("main")?.innerText.includes("ledger-3 leads")`) // the Event
	for title, want := range map[string]string{
		"Condition":  "Degraded: True|MembersDown|1 of 5 members down: ledger-4|",
		"Node":       "ledger-4|50|Crashed|PodMissing: There is no pod with this name: create it, or remove it from spec.members|||",
		"Gap before": "14|ledger-3|279502082|",
		"Type":       "Normal|CoordinatorChanged|",
	} {
		if got := h.rows(b, title); len(got) == 0 || !strings.HasPrefix(got[0], want) {
			b.t.Errorf("%s: got rows %q, want the first to begin with %q", title, got, want)
		}
	}
	if got, want := h.rows(b, "Gap before"), "|44 min|Crash|0.35 ms"; len(got) != 8 || !strings.HasSuffix(got[1], want) {
		b.t.Errorf("got tenures %q, want 8, and the second to end with %s", got, want)
	}
	b.device(1280, 2200, false)
	b.screenshot("headlamp-group.png")
	b.device(1280, 900, false)
	press(b, "Copy")
	b.await(button("Copied") + " || " + button("Selected")) // by the permission
	b.await(`document.querySelector("main code").innerText === "kubectl conclave explain ledger -n bank"`)
}

// headlampNodes compares the page with what kubectl conclave nodes prints.
func headlampNodes(b *browser, h *headlamp) {
	var groups v1.ElectionGroupList
	must(b.t, h.List(b.t.Context(), &groups))
	var want []string
	for _, row := range describe.NodeTable(groups.Items) {
		slices.Sort(row.Coordinators)
		want = append(want, fmt.Sprintf("%s|%s|%d|%s|%s", row.Node, row.Zone, row.Members, strings.Join(row.Coordinators, ", "), strings.Join(row.Stops, ", ")))
	}
	b.open("c/main/conclave/nodes")
	b.await(fmt.Sprintf(`document.querySelectorAll("main tbody tr").length === %d`, len(want)))
	if got := h.rows(b, "Node"); !slices.Equal(got, want) {
		b.t.Errorf("got rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	b.screenshot("headlamp-nodes.png")
}

// reviewsAnswered counts the answers of the API server to questions of the page about permissions.
const reviewsAnswered = `performance.getEntriesByType("resource").filter((e) => e.name.endsWith("/selfsubjectaccessreviews") && e.responseEnd).length`

func headlampStepDown(b *browser, h *headlamp) {
	const outcome = "[role=dialog] [role=alert]"
	b.t.Log("the agent refuses, because another one leads")
	former, err := h.agents.AwaitCoordinator(b.t.Context())
	must(b.t, err)
	other := h.agents.Names()[0]
	if other == former {
		other = h.agents.Names()[1]
	}
	h.set(b.t, named("shop", "ledger", groupOf(h.agents.Names(), other)))
	b.open("c/main/conclave/groups/shop/ledger")
	press(b, "Step down")
	press(b, "Step down")
	b.await(fmt.Sprintf("document.querySelector(%q)?.innerText === %q", outcome, "the agent in pod "+other+" refused to step down: this process is not the coordinator"))
	var answered int
	b.run("count the reviews", chromedp.Evaluate(reviewsAnswered, &answered))

	b.t.Log("the coordinator hands over")
	for ctx, deadline := b.t.Context(), time.Now().Add(patience); ; { // On a busy machine, the agents may elect another coordinator meanwhile.
		former, err = h.agents.AwaitCoordinator(ctx)
		must(b.t, err)
		h.set(b.t, named("shop", "ledger", groupOf(h.agents.Names(), former)))
		names := slices.DeleteFunc(h.agents.Names(), func(name string) bool { return name == former })
		want := names[0] + " leads"
		b.open("c/main/conclave/groups/shop/ledger")
		press(b, "Step down")
		b.run("open the list of members", chromedp.Focus("[role=dialog] [role=combobox]"), chromedp.KeyEvent(kb.Enter))
		b.click(`[role=listbox] [data-value="` + names[0] + `"]`)
		b.await(`!document.querySelector("[role=listbox]") && getComputedStyle(document.querySelector("[role=dialog]").parentElement).opacity === "1"`)
		b.screenshot("headlamp-step-down.png")
		press(b, "Step down")
		b.await(fmt.Sprintf("document.querySelector(%q)", outcome))
		if got := b.text(outcome); got == want {
			break
		} else if time.Now().After(deadline) || !strings.Contains(got, "not the coordinator") {
			b.t.Fatalf("got %q, want %q", got, want)
		}
	}
	press(b, "Close")
	b.await(`!document.querySelector("[role=dialog]")`)

	b.t.Log("the pod of the coordinator is gone")
	b.open("c/main/conclave/groups/bank/ledger")
	press(b, "Step down")
	press(b, "Step down")
	b.await(fmt.Sprintf(`document.querySelector(%q)?.innerText.endsWith("Try: kubectl conclave step-down ledger -n bank")`, outcome))
	b.ignoreErrors("/portforward", "Error in api stream", "Socket closed unexpectedly")

	b.t.Log("who may not forward ports has no button")
	h.user.Store(h.viewer)
	b.open("c/main/conclave/groups/bank/ledger")
	b.await(`document.querySelector("main")?.innerText.includes("Commands")`)
	b.await(fmt.Sprintf("%s >= %d", reviewsAnswered, answered))
	var there bool
	b.run("look for the button", chromedp.Evaluate("Boolean("+button("Step down")+")", &there))
	if there {
		b.t.Error("got a button, although the user may not forward a port")
	}
	b.ignoreErrors("status of 403", "events is forbidden") // for the viewer
}

// adopting returns a group whose members adopt a list, so that each node counts in two lists.
func adopting() *v1.ElectionGroup {
	g := named("bank", "adopting", placed(ledger("Bully", 4), "node-1", "node-2", "node-2", "node-3", "node-3"))
	list := g.Status.MemberList
	list.Version, list.State, list.Floor = 2, v1.ListAdopting, new(int64(1))
	list.Previous = &v1.PreviousList{Version: 1, Members: list.Members[2:]}
	return g
}
