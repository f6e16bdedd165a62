// Command release builds a release, and lists the modules in the binary and their licences.
//
//	go run . licences            writes docs/licences.md: modules in the binary, and licences
//	go run . texts > FILE        prints the texts of those licences, which go along with a binary
//	go run . sbom BINARY > FILE  prints a bill of materials of a binary, as CycloneDX 1.6 in JSON
//	go run . reproduce           builds twice, without a cache, and compares the bytes
//	go run . release FOLDER [OS/ARCH …]
//	                             builds archives, images and bills for these systems or all
//
// It is run in its own folder. The Makefile has a target for each. It is a module of its own, so
// that go.mod of coatcheck does not require what only releases need.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// root is the repository's, from the folder that this is run in.
const root = "../.."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("one of these belongs here: licences, texts, sbom BINARY, reproduce, release FOLDER [OS/ARCH …]")

func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "licences":
		return writeLicences(ctx, root, licencesPage)
	case len(args) == 1 && args[0] == "texts":
		return printTexts(ctx, root, linux, out)
	case len(args) == 2 && args[0] == "sbom":
		return printBill(ctx, root, args[1], out)
	case len(args) == 1 && args[0] == "reproduce":
		return reproduce(ctx, root, out)
	case len(args) >= 2 && args[0] == "release":
		chosen, err := chosenTargets(args[2:])
		if err != nil {
			return err
		}
		return release(ctx, root, args[1], chosen, out)
	}
	return errUsage
}

// chosenTargets are the targets of these names, as os/arch, all if there are none.
func chosenTargets(names []string) (chosen []target, err error) {
	if len(names) == 0 {
		return targets, nil
	}
	for _, name := range names {
		at := slices.IndexFunc(targets, func(t target) bool { return t.String() == name })
		if at < 0 {
			return nil, fmt.Errorf("%q is no system of a release: %v", name, targets)
		}
		chosen = append(chosen, targets[at])
	}
	return chosen, nil
}
