package command

import (
	"os"
	ossignal "os/signal"
	"syscall"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func TestDidYouMeanSuggestsTypingErrorsOnly(t *testing.T) {
	names := []string{"status", "step-down", "simulate", "watch", "RingSkip"}
	for given, want := range map[string]string{
		"statsu":    " (did you mean status?)", // Two letters are swapped.
		"stats":     " (did you mean status?)",
		"step-dwon": " (did you mean step-down?)",
		"wathc":     " (did you mean watch?)",
		"ringskip":  " (did you mean RingSkip?)",
		"elect":     "",
		"watch":     "",
		"st":        "",
		"":          "",
		"x":         "",
	} {
		expect.Equalf(t, DidYouMean(given, names), want, "%q", given)
	}
}

func TestChooseAcceptsAnyCase(t *testing.T) {
	names := []string{"Bully", "RingSkip"}
	for _, given := range []string{"Bully", "bully", "BULLY"} {
		if got, err := Choose("algorithm", given, names); got != "Bully" || err != nil {
			t.Errorf("%s: got %q, error %v", given, got, err)
		}
	}
	_, err := Choose("algorithm", "buly", names)
	if want := `unknown algorithm "buly" (did you mean Bully?): choose one of Bully, RingSkip`; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	expect.Equal(t, Canonical("ringskip,rain,BULLY", names), "RingSkip,rain,Bully")
}

// TestEndOfTerminalInterrupts: otherwise the process would end without undoing its fault.
func TestEndOfTerminalInterrupts(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT} {
		if signal == syscall.SIGHUP && ossignal.Ignored(signal) {
			continue // nohup runs the tests
		}
		ctx, stop := UntilInterrupted(t.Context())
		must.Succeed(t, syscall.Kill(os.Getpid(), signal))
		testwait.Until(t, signal.String()+" interrupts the command", func() bool { return ctx.Err() != nil })
		stop()
	}
}
