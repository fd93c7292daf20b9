package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/plugin/explain"
)

// addJournals adds the journals of the group's agents.
func (o *options) addJournals(ctx context.Context, group *v1.ElectionGroup, a *archive) {
	forward, err := o.cluster.Forwarder()
	if err == nil {
		err = explain.MayReadJournals(ctx, &o.cluster, group.Namespace)
	}
	if err != nil {
		a.miss("journals", err)
		return
	}
	journals, missing := explain.ReadJournals(ctx, group, forward)
	for i := range journals {
		a.add("journals/"+journals[i].Agent+".json",
			func() ([]byte, error) { return json.MarshalIndent(&journals[i], "", "  ") })
	}
	for _, m := range missing {
		a.missing = append(a.missing, "journals/"+m.Agent+".json: "+m.Reason)
	}
}

// The last lines of a log are enough: an agent or an operator logs nothing while nothing happens.
var (
	logLines int64 = 20_000
	logBytes int64 = 4 << 20
)

// logTimeout limits the wait for one log, and logsAtOnce the requests to the API server.
const (
	logTimeout = 20 * time.Second
	logsAtOnce = 8
)

// addLogs adds the logs of a container of each pod, and of the container before it, if it has restarted. Each is
// written as soon as it has been read, so that only a few are in memory.
func addLogs(ctx context.Context, core corev1client.CoreV1Interface, folder string, pods []corev1.Pod,
	container string, a *archive,
) {
	var reads []func()
	for i := range pods {
		p := &pods[i]
		for _, status := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if status.Name != container || status.State.Running == nil && status.State.Terminated == nil &&
				status.RestartCount == 0 {
				continue
			}
			for _, previous := range []bool{false, true}[:1+min(1, status.RestartCount)] {
				name := folder + p.Name + map[bool]string{false: ".log", true: ".previous.log"}[previous]
				options := &corev1.PodLogOptions{
					Container: container, Previous: previous, TailLines: &logLines, LimitBytes: &logBytes, Timestamps: true,
				}
				reads = append(reads, func() {
					ctx, cancel := context.WithTimeout(ctx, logTimeout)
					defer cancel()
					a.add(name, func() ([]byte, error) { return core.Pods(p.Namespace).GetLogs(p.Name, options).DoRaw(ctx) })
				})
			}
		}
	}
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), logsAtOnce, len(reads), func(i int) { reads[i]() })
}

// events lists the Events of the group and of its pods, the latest one last.
func events(ctx context.Context, core corev1client.CoreV1Interface, group *v1.ElectionGroup) ([]byte, error) {
	list, err := core.Events(group.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, clusteraccess.RequestError(err)
	}
	of := func(e *corev1.Event) bool {
		about := &e.InvolvedObject
		return about.Kind == "ElectionGroup" && about.Name == group.Name ||
			about.Kind == "Pod" &&
				slices.ContainsFunc(group.Status.Processes, func(row v1.Process) bool { return row.Pod == about.Name })
	}
	list.Items = slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return !of(&e) })
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return lastSeen(&a).Compare(lastSeen(&b)) })
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for i := range list.Items {
		e := &list.Items[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s/%s\t%dx\t%s\n", lastSeen(e).UTC().Format(time.RFC3339), e.Type, e.Reason,
			e.InvolvedObject.Kind, e.InvolvedObject.Name, max(e.Count, 1), e.Message)
	}
	err = table.Flush()
	return text.Bytes(), err
}

func lastSeen(e *corev1.Event) time.Time {
	for _, at := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time} {
		if !at.IsZero() {
			return at
		}
	}
	return e.CreationTimestamp.Time
}
