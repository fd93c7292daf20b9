// Hello is the program in the test images. It has one dependency and a version.
package main

import (
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
)

var version = "unknown"

func main() {
	tag, err := name.NewTag("hello:" + version)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stdout, "%s as %d:%d\n", tag, os.Getuid(), os.Getgid())
}
