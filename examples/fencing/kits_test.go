package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// kit is a storage that several processes write.
type kit struct {
	// connect returns the connection of a process.
	connect func() client
	// load returns the value.
	load func() string
}

type client struct {
	// write presents the token, and writes in the same transaction. It returns whether the write was rejected.
	write func(token uint64, value string) (rejected bool)
	// unfenced writes without a token.
	unfenced func(value string)
}

// TestFormerCoordinatorsAreRejected lets a former coordinator write at the same time as the next one, and again
// afterwards, as a process does that was paused between its check and its write. Without the fence, the same writes do
// damage.
func TestFormerCoordinatorsAreRejected(t *testing.T) {
	for name, start := range map[string]func(
		*testing.T) kit{"HTTP": startHTTP, "PostgreSQL": startPostgres, "Redis": startRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := start(t)
			former, next := k.connect(), k.connect()
			rounds, late, damaged := uint64(1000), 0, 0
			if testing.Short() {
				rounds = 100
			}
			for i := range rounds {
				old, wanted := fmt.Sprint("former", i), fmt.Sprint("next", i)
				done := make(chan struct{})
				go func() {
					former.write(2*i+1, old) // Before the other one, or rejected.
					close(done)
				}()
				if next.write(2*i+2, wanted) {
					t.Fatalf("round %d: got the write of the coordinator rejected", i)
				}
				<-done
				must.Equalf(t, k.load(), wanted, "round %d: value after writes at the same time", i)
				if former.write(2*i+1, old) {
					late++
				}
				must.Equalf(t, k.load(), wanted, "round %d: value after a late write", i)
				if next.write(2*i+2, wanted) {
					t.Fatalf("round %d: got the next write of the coordinator rejected", i)
				}
				former.unfenced(old)
				if k.load() != wanted {
					damaged++
				}
			}
			if late != int(rounds) || damaged != int(rounds) {
				t.Errorf("got %d late writes rejected and %d values damaged without the fence, want %d each", late, damaged, rounds)
			}
		})
	}
}

func startHTTP(t *testing.T) kit {
	r := &register{}
	f, err := open(filepath.Join(t.TempDir(), "highest"), r)
	must.Succeed(t, err)
	load := func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return string(r.value)
	}
	return kit{load: load, connect: func() client {
		return client{
			write: func(token uint64, value string) bool {
				code := put(f, strconv.FormatUint(token, 10), value)
				if code != http.StatusOK && code != http.StatusConflict {
					t.Errorf("got status %d", code)
				}
				return code == http.StatusConflict
			},
			unfenced: func(value string) { put(r, "", value) },
		}
	}}
}

func startPostgres(t *testing.T) kit {
	bin := postgresPrograms(t)
	data, credential := folderOfServer(t)
	server := func(program string, arguments ...string) *exec.Cmd {
		command := exec.Command(filepath.Join(bin, program), arguments...)
		command.Dir, command.SysProcAttr = data, &syscall.SysProcAttr{Credential: credential}
		return command
	}
	if output, err := server("initdb", "--no-sync", "--auth", "trust", "--username", "postgres", "--pgdata",
		data+"/db").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, output)
	}
	// Without TCP. What this test is about doesn't depend on the disk.
	run(t, server("postgres", "-D", data+"/db", "-k", data, "-c", "listen_addresses=", "-c", "fsync=off"))
	connect := []string{
		"--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--host", data, "--username", "postgres",
		"--set", "VERBOSITY=sqlstate",
	}
	testwait.Until(t, "PostgreSQL accepts connections", func() bool {
		return exec.CommandContext(t.Context(), "psql", append(connect, "--command", "SELECT 1")...).Run() == nil
	})
	admin := connectTo(t, "%s;\n\\echo %s\n", "psql", connect...)
	functions := must.ReadFile(t, "postgres.sql")
	admin.want("", string(functions))
	admin.want("", "CREATE TABLE ledger (value text); INSERT INTO ledger VALUES ('')")
	return kit{
		load: func() string { return admin.ask("SELECT value FROM ledger") },
		connect: func() client {
			s := connectTo(t, "%s;\n\\echo %s\n", "psql", connect...)
			return client{
				write: func(token uint64, value string) bool {
					answer := s.ask(fmt.Sprintf("BEGIN; SELECT conclave_fence('ledger', %d)", token))
					if answer == "" {
						s.want("", fmt.Sprintf("UPDATE ledger SET value = '%s'", value))
					} else if answer != "ERROR:  CFENC" {
						t.Errorf("got %q", answer)
					}
					s.want("", "COMMIT")
					return answer != ""
				},
				unfenced: func(value string) { s.want("", fmt.Sprintf("UPDATE ledger SET value = '%s'", value)) },
			}
		},
	}
}

// postgresPrograms returns the folder of the server's programs.
func postgresPrograms(t *testing.T) string {
	t.Helper()
	all, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	must.Succeed(t, err)
	if _, err := exec.LookPath("psql"); err != nil || len(all) == 0 {
		need.Skip(t, "PostgreSQL: see hack/packages")
	}
	return all[len(all)-1]
}

// folderOfServer returns a folder, and as root another user: PostgreSQL refuses to run as root.
func folderOfServer(t *testing.T) (string, *syscall.Credential) {
	t.Helper()
	folder, err := os.MkdirTemp("", "fencing") // The path of a socket in it must be short.
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, os.RemoveAll(folder)) })
	if os.Geteuid() != 0 {
		return folder, nil
	}
	const nobody = 65534
	must.Succeed(t, os.Chown(folder, nobody, nobody))
	return folder, &syscall.Credential{Uid: nobody, Gid: nobody}
}

func startRedis(t *testing.T) kit {
	if _, err := exec.LookPath("redis-server"); err != nil {
		need.Skip(t, "Redis: see hack/packages")
	}
	folder, _ := folderOfServer(t)
	socket := folder + "/socket"
	run(t, exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--dir", folder, "--save", ""))
	testwait.Until(t, "Redis accepts connections", func() bool {
		return exec.CommandContext(t.Context(), "redis-cli", "-s", socket, "PING").Run() == nil
	})
	script := must.ReadFile(t, "redis.lua")
	load := exec.CommandContext(t.Context(), "redis-cli", "-s", socket, "-x", "SCRIPT", "LOAD")
	load.Stdin = strings.NewReader(string(script))
	hash, err := load.Output()
	must.Succeed(t, err)
	admin := connectTo(t, "%s\nECHO %s\n", "redis-cli", "-s", socket)
	return kit{
		load: func() string { return admin.ask("GET ledger") },
		connect: func() client {
			s := connectTo(t, "%s\nECHO %s\n", "redis-cli", "-s", socket)
			return client{
				write: func(token uint64, value string) bool {
					answer := s.ask(fmt.Sprintf("EVALSHA %s 2 ledger:fence ledger %d SET ledger %s",
						strings.TrimSpace(string(hash)), token, value))
					if answer != "OK" && !strings.HasPrefix(answer, "FENCE token ") {
						t.Errorf("got %q", answer)
					}
					return answer != "OK"
				},
				unfenced: func(value string) { s.want("OK", "SET ledger "+value) },
			}
		},
	}
}

// run starts a server, and ends it with the test.
func run(t *testing.T, server *exec.Cmd) {
	t.Helper()
	must.Succeed(t, server.Start())
	t.Cleanup(func() {
		must.Succeed(t, server.Process.Signal(syscall.SIGINT))
		must.Succeed(t, server.Wait())
	})
}

// session is a command line client that stays connected.
type session struct {
	t *testing.T
	// format makes the client run a command, and then print a text.
	format string
	stdin  io.Writer
	output *bufio.Reader
}

func connectTo(t *testing.T, format, program string, arguments ...string) *session {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, arguments...)
	stdin, err := command.StdinPipe()
	must.Succeed(t, err)
	reader, writer, err := os.Pipe()
	must.Succeed(t, err)
	command.Stdout, command.Stderr = writer, writer
	must.Succeed(t, command.Start())
	must.Succeed(t, writer.Close())
	t.Cleanup(func() {
		must.Succeed(t, stdin.Close())
		_ = command.Wait() // psql ends with the status of the last command.
		must.Succeed(t, reader.Close())
	})
	return &session{t, format, stdin, bufio.NewReader(reader)}
}

// ask runs a command, and returns what is printed.
func (s *session) ask(command string) string {
	s.t.Helper()
	const end = "end-of-answer"
	if _, err := fmt.Fprintf(s.stdin, s.format, command, end); err != nil {
		s.t.Error(err)
	}
	var lines []string
	for {
		line, err := s.output.ReadString('\n')
		if err != nil {
			s.t.Errorf("%s: %v after %q", command, err, lines)
			return ""
		}
		if line = strings.TrimSpace(line); line == end {
			return strings.Join(lines, "\n")
		} else if line != "" {
			lines = append(lines, line)
		}
	}
}

func (s *session) want(answer, command string) {
	s.t.Helper()
	expect.Equalf(s.t, s.ask(command), answer, "%s", command)
}

func put(handler http.Handler, token, value string) int {
	request := httptest.NewRequest(http.MethodPut, "/", strings.NewReader(value))
	request.Header.Set(header, token)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Code
}

func TestLowerTokensAreRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "highest")
	r := &register{}
	f, err := open(path, r)
	must.Succeed(t, err)
	for _, c := range []struct {
		token, value string
		code         int
		after        string
	}{
		{"7", "a", http.StatusOK, "a"},
		{"7", "b", http.StatusOK, "b"},
		{"9", "c", http.StatusOK, "c"},
		{"8", "late", http.StatusConflict, "c"},
		{"-1", "bad", http.StatusBadRequest, "c"},
		{"", "bad", http.StatusBadRequest, "c"},
	} {
		if code := put(f, c.token, c.value); code != c.code || string(r.value) != c.after {
			t.Errorf("%q: got status %d and value %q, want %d and %q", c.token, code, r.value, c.code, c.after)
		}
	}
	restarted, err := open(path, r)
	must.Succeed(t, err)
	if code := put(restarted, "8", "late"); code != http.StatusConflict {
		t.Errorf("after a restart, got status %d for token 8, want 409", code)
	}
	must.Succeed(t, os.WriteFile(path, []byte("nine"), 0o600))
	if _, err := open(path, r); err == nil || !strings.Contains(err.Error(), "must have the highest token") {
		t.Errorf("got error %v for a file without a token", err)
	}
}

func TestTokenThatCannotBeStoredIsRejected(t *testing.T) {
	r := &register{}
	f := &fence{next: r, save: func(uint64) error { return errors.New("no space left") }}
	if code := put(f, "7", "a"); code != http.StatusInternalServerError || r.value != nil {
		t.Errorf("got status %d and value %q, want 500 and none", code, r.value)
	}
}

// A former coordinator's write may take long. The next coordinator's write doesn't begin before it has ended, or it
// could be overwritten.
func TestLaterCoordinatorWaitsForWritesOfFormerOne(t *testing.T) {
	began, both := make(chan struct{}), make(chan struct{})
	f := &fence{save: func(uint64) error { return nil }, next: http.HandlerFunc(
		func(_ http.ResponseWriter, request *http.Request) {
			if request.Header.Get(header) == "8" {
				close(both)
				return
			}
			close(began)
			select {
			case <-both:
				t.Error("got a request with token 8 while one with token 7 was handled")
			case <-time.After(100 * time.Millisecond): // Nothing tells that the other request waits.
			}
		})}
	first := make(chan int)
	go func() { first <- put(f, "7", "a") }()
	<-began
	if code := put(f, "8", "b"); code != http.StatusOK {
		t.Errorf("got status %d for token 8, want 200", code)
	}
	if code := <-first; code != http.StatusOK {
		t.Errorf("got status %d for token 7, want 200", code)
	}
}
