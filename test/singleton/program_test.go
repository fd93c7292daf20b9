// Package singleton tests that the program of conclave-agent exec runs only while its agent leads, with real agents and faults.
package singleton

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// The program under test is this test program with these variables. It appends lines to a file, which checks nothing.
const (
	roleVariable = "SINGLETON_ROLE"
	fileVariable = "SINGLETON_FILE"
	deafVariable = "SINGLETON_DEAF"
)

// The roles of the program's processes. The daemon has a session of its own, and its parent has ended.
const (
	roleMain    = "main"
	roleChild   = "child"
	roleForks   = "forks"
	roleDaemon  = "daemon"
	writeEvery  = 3 * time.Millisecond
	programFail = 99
)

var roles = []string{roleMain, roleChild, roleDaemon}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(runProgram(role))
	}
	agentcluster.Main(m)
}

// runProgram is a program that knows nothing of elections, but writes its token so that the test can check the order. Only the main
// process ends after SIGTERM.
func runProgram(role string) int {
	start := func(role string, setsid bool) error {
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), roleVariable+"="+role)
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
		return child.Start()
	}
	file, err := os.OpenFile(os.Getenv(fileVariable), os.O_APPEND|os.O_WRONLY, 0)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	switch role {
	case roleMain:
		for _, next := range []error{start(roleChild, false), start(roleForks, true)} {
			if next != nil {
				err = next
			}
		}
	case roleForks:
		err = start(roleDaemon, true)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return programFail
	}
	if role == roleForks {
		return 0
	}
	line := fmt.Appendf(nil, "%s %s %s %d\n", os.Getenv("CONCLAVE_TOKEN"), os.Getenv("CONCLAVE_MEMBER"), role, os.Getpid())
	for again := time.NewTicker(writeEvery); ; {
		select {
		case <-again.C:
			if _, err := file.Write(line); err != nil {
				return programFail
			}
		case <-term:
			if role == roleMain && os.Getenv(deafVariable) == "" {
				return 0
			}
		}
	}
}
