package v1

import "testing"

func TestDescribeEnd(t *testing.T) {
	for reason, want := range map[EndReason]struct {
		text    string
		failure bool
	}{
		EndCrash: {"a crashed", true}, EndSilence: {"a fell silent", true}, EndLapse: {"the lease of a lapsed", true},
		EndSessionClosed: {"the application of a closed its session", true},
		EndNotRenewed:    {"the session of a was not renewed in time", true},
		EndProbeFailed:   {"the application of a failed its probe", true},
		EndStepDown:      {"a stepped down", false}, EndPreempted: {"a handed over to a higher member", false},
		EndPodDeleted:   {"pod a was deleted", false},
		EndAgentStopped: {"the agent of a was stopped", false},
		EndEvacuated:    {"the node of a was cordoned or evacuated", false},
		EndHandOver:     {"a handed over", false}, EndMembership: {"the member list changed", false},
		EndUnknown: {"", false}, "": {"", false}, "Eclipse": {"", false},
	} {
		tenure := Tenure{Pod: "a", EndReason: reason}
		if text, failure := tenure.DescribeEnd(), tenure.EndedByFailure(); text != want.text || failure != want.failure {
			t.Errorf("%q: got %q, failure %t, want %q, %t", reason, text, failure, want.text, want.failure)
		}
	}
}
