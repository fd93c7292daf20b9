package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
	served "github.com/conclave-dev/conclave/internal/dashboard"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

const headlampSource = "../../../clients/headlamp"

// absent are the modules of Headlamp that aren't installed, because the pages of the plugin don't show what uses them.
var absent = strings.Fields(
	`cronstrue/i18n @xyflow/react/dist/base.css @xyflow/react @xterm/xterm/css/xterm.css @xterm/xterm @xterm/addon-fit
	@xterm/addon-search elkjs/lib/elk-api elkjs/lib/elk-worker.min.js?url @mui/lab @mui/x-tree-view/TreeItem
	@mui/x-tree-view/TreeView recharts
	@monaco-editor/react monaco-editor @apidevtools/swagger-parser fuse.js jsep jsonpath-plus react-dropzone`)

// TestHeadlampPlugin uses the plugin as users of Headlamp do. Its requests reach a real API server, and by the
// kubelet's code for forwarded ports real agents.
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
		{"connections", headlampConnections},
		{"the nodes", headlampNodes},
		{"the operator is silent", headlampStale},
		{"the coordinator steps down", headlampStepDown},
	} {
		if !t.Run(part.name, func(t *testing.T) {
			b.t = t
			part.run(b, h)
			// Headlamp looks for all, and does without.
			b.ignoreErrors("./locales/en/", "/apis/apiextensions.k8s.io/v1beta1/", "/leases/conclave-manager")
			b.expectNoErrors()
		}) {
			break // The next part would fail for the same reason.
		}
	}
}

// TestHeadlampHealth compares the rule of the plugin with that of the page, for all conditions on which both depend.
func TestHeadlampHealth(t *testing.T) {
	b := start(t)
	source := must.ReadFile(t, headlampSource+"/src/group.ts")
	esbuild := exec.CommandContext(t.Context(), "../../../hack/tools/tool", "esbuild", "--loader=ts",
		"--format=iife", "--global-name=conclave")
	esbuild.Stdin = bytes.NewReader(source)
	script, err := esbuild.Output()
	must.Succeed(t, err)
	statuses := []metav1.ConditionStatus{"", metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}
	types := []v1.ConditionType{
		v1.ConditionAvailable, v1.ConditionDegraded, v1.ConditionProgressing, v1.ConditionReady, v1.ConditionAgentsConnected,
	}
	groups := []v1.ElectionGroup{{}}
	for _, of := range types {
		var more []v1.ElectionGroup
		for _, g := range groups {
			for _, status := range statuses {
				next := *g.DeepCopy()
				if status != "" {
					next.Status.Conditions = append(next.Status.Conditions, metav1.Condition{Type: string(of), Status: status})
				}
				more = append(more, next)
			}
		}
		groups = more
	}
	for i := range groups {
		if i%3 > 0 {
			groups[i].Status.ReadyMembers = new(int32(i%3 - 1))
		}
	}
	input, err := json.Marshal(groups)
	must.Succeed(t, err)
	var got []served.Health
	b.run("evaluate the rule", chromedp.Evaluate(fmt.Sprintf("%s; %s.map(conclave.health)", script, input), &got))
	counts := map[served.Health]int{}
	for i := range groups {
		want := served.NewSummary(&groups[i], time.Now()).Health
		if counts[want]++; i >= len(got) || got[i] != want {
			t.Fatalf("got %q of %d groups, want %s for the conditions %v, ready %v", got[i:min(i+1, len(got))], len(got), want,
				groups[i].Status.Conditions, groups[i].Status.ReadyMembers)
		}
	}
	expect.Lenf(t, counts, 5, "groups with the states (all states)")
}

// rows returns the rows of a table on the page, whose cells are separated by |.
func (h *headlamp) rows(b *browser, title string) (rows []string) {
	b.t.Helper()
	b.run("read the table", chromedp.Evaluate(fmt.Sprintf(
		`[...[...document.querySelectorAll("main table")].find((t) => t.tHead?.innerText.includes(%q))?.tBodies[0].rows ?? []]
		.map((row) => [...row.cells].map((cell) => cell.innerText.trim()).join("|"))`, title), &rows))
	return rows
}

// button returns an expression for the button with this text.
func button(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("button")].findLast((button) => button.innerText.startsWith(%q))`,
		text)
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
		"broken|bank|Unavailable||False|Healthy|0 of 5|Bully|",
		"ledger|bank|Degraded|ledger-3|True|Healthy|4 of 5|StatusTable|",
		"adopting|bank|Healthy|ledger-4|True|Healthy|5 of 5|Bully|",
		"ring|bank|Healthy|ledger-4|True|Healthy|5 of 5|RingSkip|",
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
		"Condition": "Degraded: True|MembersDown|1 of 5 members down: ledger-4|",
		"Node": "ledger-4|50|Crashed|PodMissing: There is no pod with this name: create it, or " +
			"remove it from spec.members|||",
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

// headlampConnections: each number is in the column of its name, and an agent that carries none says so.
func headlampConnections(b *browser, h *headlamp) {
	h.answer.Store(new(`{"connections":{"open":12,"waiting":3,"waitedInVain":4,"reset":5,"refused":6,"failedDials":700}}`))
	b.open("c/main/conclave/groups/shop/ledger")
	b.await(button("Ask the agents"))
	expect.Lenf(b.t, h.rows(b, "Waited in vain"), 0, "rows before the user asked")
	press(b, "Ask the agents")
	b.await(button("Ask again"))
	h.answer.Store(nil)
	var want []string
	for i, name := range h.agents.Names() {
		want = append(want, name+[]string{"|12|3|4|5|6|700|", "|||||||its agent carries none"}[min(i, 1)])
	}
	got := h.rows(b, "Waited in vain")
	slices.Sort(got)
	expect.EqualSlicesf(b.t, got, want, "rows")
	b.run("scroll to them", chromedp.Evaluate(button("Ask again")+".scrollIntoView()", nil))
	b.screenshot("connections-headlamp.png")
	b.open("c/main/conclave/groups/bank/ledger")
	b.await(`document.querySelector("main")?.innerText.includes("Commands")`)
	b.await("!" + button("Ask the agents")) // The Service of this group points at the coordinator.
}

// headlampNodes compares the page with what kubectl conclave nodes prints.
func headlampNodes(b *browser, h *headlamp) {
	var groups v1.ElectionGroupList
	must.Succeed(b.t, h.List(b.t.Context(), &groups))
	var want []string
	for _, row := range describe.NodeTable(groups.Items) {
		slices.Sort(row.Coordinators)
		want = append(want, fmt.Sprintf("%s|%s|%d|%s|%s", row.Node, row.Zone, row.Members,
			strings.Join(row.Coordinators, ", "), strings.Join(row.Stops, ", ")))
	}
	b.open("c/main/conclave/nodes")
	b.await(fmt.Sprintf(`document.querySelectorAll("main tbody tr").length === %d`, len(want)))
	if got := h.rows(b, "Node"); !slices.Equal(got, want) {
		b.t.Errorf("got rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	b.screenshot("headlamp-nodes.png")
}

// headlampStale: a page says that it may be stale while the Lease of the operator isn't renewed.
func headlampStale(b *browser, h *headlamp) {
	const alert, text = `document.querySelector("main [role=status].MuiAlert-root")`,
		"The operator has not shown that it runs. "
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: operatorlease.Name}}
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-time.Minute)))
	operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "manager"}}
	operator.Labels = map[string]string{"app.kubernetes.io/name": "conclave", "app.kubernetes.io/component": "manager"}
	operator.Spec.Selector = &metav1.LabelSelector{MatchLabels: operator.Labels}
	operator.Spec.Template.ObjectMeta.Labels = operator.Labels
	operator.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: "manager"}}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}, operator, lease,
	} {
		must.Succeed(b.t, h.Create(b.t.Context(), object))
	}
	b.open("c/main/conclave/groups")
	b.await(fmt.Sprintf(`%s?.innerText.startsWith(%q)`, alert, text))
	b.await(fmt.Sprintf(`/ Age: (\d+ s|\d+ min.*)\.$/.test(%s.innerText)`, alert))
	b.screenshot("headlamp-stale.png")
	lease.Spec.RenewTime = new(metav1.NowMicro())
	must.Succeed(b.t, h.Update(b.t.Context(), lease))
	b.await("!" + alert)
	b.open("c/main/conclave/groups/bank/ledger")
	b.await(alert) // It isn't renewed again.
}

// reviewsAnswered counts the answers of the API server to questions of the page about permissions.
const reviewsAnswered = `performance.getEntriesByType("resource").filter((e) => ` +
	`e.name.endsWith("/selfsubjectaccessreviews") && e.responseEnd).length`

func headlampStepDown(b *browser, h *headlamp) {
	const outcome = "[role=dialog] [role=alert]"
	b.t.Log("the agent refuses, because another one leads")
	former, err := h.agents.AwaitCoordinator(b.t.Context())
	must.Succeed(b.t, err)
	other := h.agents.Names()[0]
	if other == former {
		other = h.agents.Names()[1]
	}
	h.set(b.t, named("shop", "ledger", groupOf(h.agents.Names(), other)))
	b.open("c/main/conclave/groups/shop/ledger")
	press(b, "Step down")
	press(b, "Step down")
	b.await(fmt.Sprintf("document.querySelector(%q)?.innerText === %q", outcome,
		"the agent in pod "+other+" refused to step down: this process is not the coordinator"))
	var answered int
	b.run("count the reviews", chromedp.Evaluate(reviewsAnswered, &answered))

	b.t.Log("the coordinator hands over")
	// On a busy machine, the agents may elect another coordinator meanwhile.
	for ctx, deadline := b.t.Context(), time.Now().Add(patience); ; {
		former, err = h.agents.AwaitCoordinator(ctx)
		must.Succeed(b.t, err)
		h.set(b.t, named("shop", "ledger", groupOf(h.agents.Names(), former)))
		names := slices.DeleteFunc(h.agents.Names(), func(name string) bool { return name == former })
		want := names[0] + " leads"
		b.open("c/main/conclave/groups/shop/ledger")
		press(b, "Step down")
		b.run("open the list of members", chromedp.Focus("[role=dialog] [role=combobox]"), chromedp.KeyEvent(kb.Enter))
		b.click(`[role=listbox] [data-value="` + names[0] + `"]`)
		b.await(`!document.querySelector("[role=listbox]") && ` +
			`getComputedStyle(document.querySelector("[role=dialog]").parentElement).opacity === "1"`)
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
	var pod corev1.Pod
	must.Succeed(b.t, h.Get(b.t.Context(), client.ObjectKey{Namespace: "shop", Name: former}, &pod))
	if by := pod.Annotations[v1.AnnotationStepDownBy]; !strings.HasPrefix(by, "ledger/") || len(strings.Fields(by)) != 2 {
		b.t.Errorf("got annotations %v, want the name of the user", pod.Annotations)
	}

	b.t.Log("the pod of the coordinator is gone")
	b.open("c/main/conclave/groups/bank/ledger")
	press(b, "Step down")
	press(b, "Step down")
	b.await(fmt.Sprintf(`document.querySelector(%q)?.innerText.endsWith("Try: kubectl conclave step-down ledger -n bank")`,
		outcome))
	b.ignoreErrors("/portforward", "/pods/ledger-3", "Error in api stream", "Socket closed unexpectedly")

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
	list := g.Status.Protocol.MemberList
	list.Version, list.State = 2, v1.ListAdopting
	list.Previous = &v1.PreviousList{Version: 1, Members: list.Members[2:], LeaseMillis: 9}
	return g
}
