// Command peer is the workload of the tests of hack/cluster: a pod that answers requests and sends requests to other pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// timeout bounds each request. The test considers a pod unreachable after this time.
const timeout = time.Second

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: peer serve ADDRESS | get URL... | lookup NAME | hold ADDRESS DURATION"))
	}
	verb, arguments := os.Args[1], os.Args[2:]
	var err error
	switch verb {
	case "serve":
		err = serve(arguments[0])
	case "get":
		err = get(arguments)
	case "lookup":
		err = lookup(arguments[0])
	case "hold":
		err = hold(arguments[0], arguments[1])
	default:
		err = fmt.Errorf("unknown verb %q", verb)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "peer:", err)
	os.Exit(1)
}

// serve answers every request with the pod's name, until SIGTERM.
func serve(address string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: address, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, name)
	})}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	fmt.Println(name, "serves", address)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// get requests all URLs concurrently and prints the responses. It fails if any request fails.
func get(urls []string) error {
	client := http.Client{Timeout: timeout}
	answers := make(chan error)
	for _, url := range urls {
		go func() {
			response, err := client.Get(url)
			if err != nil {
				answers <- err
				return
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			fmt.Print(string(body))
			answers <- err
		}()
	}
	var err error
	for range urls {
		err = errors.Join(err, <-answers)
	}
	return err
}

// lookup prints the sorted addresses of a name.
func lookup(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	slices.Sort(addresses)
	fmt.Println(strings.Join(addresses, "\n"))
	return nil
}

// hold connects to an address and prints "connected". Then it prints "end" or "reset" when the connection ends, or
// "silence" if nothing arrives within the duration.
func hold(address, duration string) error {
	limit, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	connection, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return err
	}
	defer connection.Close()
	fmt.Println("connected")
	if err := connection.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err = connection.Read(make([]byte, 1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		fmt.Println("silence")
	case errors.Is(err, io.EOF):
		fmt.Println("end")
	case errors.Is(err, syscall.ECONNRESET):
		fmt.Println("reset")
	default:
		return fmt.Errorf("unexpected end of the connection: %w", err)
	}
	return nil
}
