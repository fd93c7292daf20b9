package v1

import (
	"fmt"
	"strconv"
	"time"
)

// endTexts describe the reasons, with %s for the pod of the coordinator.
var endTexts = map[EndReason]string{
	EndCrash:         "%s crashed",
	EndSilence:       "%s fell silent",
	EndLapse:         "the lease of %s lapsed",
	EndSessionClosed: "the application of %s closed its session",
	EndNotRenewed:    "the session of %s was not renewed in time",
	EndProbeFailed:   "the application of %s failed its probe",
	EndStepDown:      "%s stepped down",
	EndPreempted:     "%s handed over to a higher member",
	EndPodDeleted:    "pod %s was deleted",
	EndAgentStopped:  "the agent of %s was stopped",
	EndEvacuated:     "the node of %s was cordoned or evacuated",
	EndHandOver:      "%s handed over",
}

// DescribeEnd describes why the tenure ended, as in "ledger-2 crashed". It returns "" if the
// tenure lasts, or if the reason is not known.
func (t *Tenure) DescribeEnd() string {
	if t.EndReason == EndMembership {
		return "the member list changed"
	}
	text, known := endTexts[t.EndReason]
	if !known {
		return ""
	}
	if text = fmt.Sprintf(text, t.Pod); t.EndedBy != "" {
		text += ", as " + t.EndedBy + " requested"
	}
	return text
}

// EndedByFailure reports whether the tenure ended because something failed, rather than as
// planned or for a reason that is not known.
func (t *Tenure) EndedByFailure() bool {
	switch t.EndReason {
	case EndCrash, EndSilence, EndLapse, EndSessionClosed, EndNotRenewed, EndProbeFailed:
		return true
	case EndStepDown, EndPreempted, EndPodDeleted, EndAgentStopped, EndEvacuated, EndMembership, EndHandOver, EndUnknown:
	}
	return false
}

// Gap returns the time without a coordinator before the tenure, and whether it is known.
func (t *Tenure) Gap() (time.Duration, bool) {
	if t.GapMicros == nil {
		return 0, false
	}
	return time.Duration(*t.GapMicros) * time.Microsecond, true
}

// DescribeElection describes the newest tenure of a history, as in "b became coordinator in
// term 7 after c crashed; no coordinator for 4.8 ms".
func DescribeElection(history []Tenure) string {
	if len(history) == 0 {
		return ""
	}
	now := &history[0]
	if len(history) == 1 {
		return fmt.Sprintf("%s became coordinator in term %d", now.Pod, now.Term)
	}
	again, previous := "", &history[1]
	if previous.Pod == now.Pod {
		again = " again"
	}
	text := fmt.Sprintf("%s became coordinator%s in term %d", now.Pod, again, now.Term)
	switch end := previous.DescribeEnd(); {
	case end != "":
		text += " after " + end
	case again == "":
		text += ", after " + previous.Pod
	}
	if gap, known := now.Gap(); known {
		text += "; no coordinator for " + FormatGap(gap)
	}
	return text
}

// FormatGap formats a time without a coordinator with two significant digits or more, as
// in 0.35 ms, 4.8 ms, 493 ms, 1.4 s and 2m10s.
func FormatGap(gap time.Duration) string {
	millis := float64(gap) / float64(time.Millisecond)
	switch {
	case gap < time.Millisecond:
		return strconv.FormatFloat(millis, 'f', 2, 64) + " ms"
	case gap < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", millis)
	case gap < time.Second:
		return fmt.Sprintf("%.0f ms", millis)
	case gap < time.Minute:
		return fmt.Sprintf("%.1f s", gap.Seconds())
	}
	return gap.Round(time.Second).String()
}
