package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// leadThenWait makes c lead, and b wait.
func leadThenWait(l *lane) error {
	if err := l.start("c"); err != nil {
		return err
	}
	if _, err := l.await("c", "lead"); err != nil {
		return err
	}
	return l.start("b")
}

// stepDown makes an agent hand over, once the next one is ready.
func (l *lane) stepDown(from string) error {
	return l.poll(func(ctx context.Context) error {
		_, err := l.cluster.StepDown(ctx, from, "")
		return err
	})
}

// awaitReady waits until the application beside an agent counts, so that it may be elected.
func (l *lane) awaitReady(names ...string) error {
	return l.poll(func(ctx context.Context) error {
		for _, name := range names {
			status, err := l.cluster.Status(ctx, name)
			if err != nil {
				return err
			}
			for _, process := range status.Processes {
				if process.Name == name && process.Ineligible != "" {
					return errors.New(process.Ineligible)
				}
			}
		}
		return nil
	})
}

// acts returns the token with which a driver acts, 0 if it doesn't, and the milliseconds that are left.
func (l *lane) acts(name string) (token uint64, left int, err error) {
	if err := l.tell(name, "act"); err != nil {
		return 0, 0, err
	}
	text, err := l.await(name, "act")
	if err != nil || text == "idle" {
		return 0, 0, err
	}
	_, err = fmt.Sscan(text, &token, &left)
	return token, left, err
}

// checkIdle checks that a driver doesn't act.
func (l *lane) checkIdle(name string) error {
	token, _, err := l.acts(name)
	if err == nil && token != 0 {
		err = fmt.Errorf("%s acts with token %d, want that it doesn't", name, token)
	}
	return err
}

// awaitHeld waits until a driver has handled all commands before.
func (l *lane) awaitHeld(name string) error {
	_, _, err := l.acts(name)
	return err
}

// awaitReturn waits until run has returned with an error, or for exec until it has ended with a status, and with the
// error.
func (l *lane) awaitReturn(name, want string, status int) error {
	if l.language != languageExec {
		got, err := l.await(name, "returned")
		if err != nil || !strings.HasPrefix(got, want) {
			return fmt.Errorf("run of %s returned %q, %w, want %q", name, got, err, want)
		}
		return nil
	}
	if got, err := l.awaitEnd(name); err != nil || got != status {
		return fmt.Errorf("%s ended with status %d, %w, want %d", name, got, err, status)
	}
	if status == 1 {
		return l.awaitLog(want)
	}
	return nil
}

// awaitLog waits for a text at stderr.
func (l *lane) awaitLog(text string) error {
	return l.poll(func(context.Context) error {
		log, err := os.ReadFile(l.folder + "/stderr")
		if err == nil && !strings.Contains(string(log), text) {
			err = fmt.Errorf("stderr doesn't have %q", text)
		}
		return err
	})
}

// renewals returns when the session that leads beside an agent has renewed last.
func (l *lane) renewals(ctx context.Context, name string) (last time.Time, err error) {
	status, err := l.cluster.Status(ctx, name)
	for _, session := range status.Sessions {
		if session.RenewedAt.After(last) {
			last = session.RenewedAt
		}
	}
	return last, err
}

// awaitRenewal waits until it has renewed again.
func (l *lane) awaitRenewal(name string, before time.Time) error {
	return l.poll(func(ctx context.Context) error {
		last, err := l.renewals(ctx, name)
		if err == nil && last.Equal(before) {
			err = errors.New("no renewal")
		}
		return err
	})
}

// awaitSessions waits until an agent has so many sessions.
func (l *lane) awaitSessions(name string, count int) error {
	return l.poll(func(ctx context.Context) error {
		status, err := l.cluster.Status(ctx, name)
		if err == nil && len(status.Sessions) != count {
			err = fmt.Errorf("got %d sessions, want %d", len(status.Sessions), count)
		}
		return err
	})
}
