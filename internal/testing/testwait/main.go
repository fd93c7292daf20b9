package testwait

import (
	"flag"
	"strconv"
	"testing"
)

// Main runs the tests of a package that mostly wait, for leases and timeouts: up to atOnce
// parallel ones at once, however many processors there are. The flag -parallel takes precedence.
func Main(m *testing.M, atOnce int) int {
	const parallel = "test.parallel"
	flag.Parse()
	specified := false
	flag.Visit(func(f *flag.Flag) { specified = specified || f.Name == parallel })
	if !specified {
		if err := flag.Set(parallel, strconv.Itoa(atOnce)); err != nil {
			panic(err) // The package testing has no such flag any more.
		}
	}
	return m.Run()
}
