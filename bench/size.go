package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// built is the program that make build makes, seen from here.
const built = "../bin/coatcheck"

// What the size command measures.
const (
	programSize = "the program, stripped"
	coldBuild   = "a build with an empty cache"
)

// standardLibrary is the part of a cold build that every program with the same imports pays.
const standardLibrary = "its standard library"

// sizeCommand builds the program as make build does, and tells how large it is, and at wish how
// long a build takes that has no cache.
func sizeCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("size", flag.ContinueOnError)
	cold := flags.Bool("cold", false, "also build it with an empty cache, which takes some two minutes")
	var out output
	out.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := build(ctx); err != nil {
		return err
	}
	file, err := os.Stat(built)
	if err != nil {
		return err
	}
	t := &table{Title: "size", When: time.Now().UTC(), Machine: aboutGo(), Rounds: 1, Columns: []string{"what", "side", "", "unit"}}
	t.tell(programSize, coatcheck, "MB", float64(file.Size())/1e6)
	if *cold {
		library, all, err := buildCold(ctx, "..", "./cmd/coatcheck")
		if err != nil {
			return err
		}
		t.tellCold(library, all)
	}
	return out.write(stdout, t)
}

func (t *table) tellCold(library, all time.Duration) {
	t.tell(coldBuild, standardLibrary, "s", library.Seconds())
	t.tell(coldBuild, coatcheck, "s", all.Seconds())
}

// tell adds a row of one value, and keeps it.
func (t *table) tell(what, side, unit string, value float64) {
	t.add(what, side, value, unit)
	t.keep(what, side, unit, []float64{value})
}

// build makes the program.
func build(ctx context.Context) error {
	_, err := runIn(ctx, "..", nil, "make", "build")
	return err
}

// buildCold builds a module's program with a cache of its own that is empty, and tells how long its
// part of the standard library took, and how long all of it did.
func buildCold(ctx context.Context, module, program string) (library, all time.Duration, err error) {
	folder, err := os.MkdirTemp("", "coatcheck-cold-")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	imported, err := runIn(ctx, module, nil, "go", "list", "-deps", "-f", "{{if .Standard}}{{.ImportPath}}{{end}}", program)
	if err != nil {
		return 0, 0, err
	}
	if _, err := runIn(ctx, module, nil, "go", "mod", "download"); err != nil {
		return 0, 0, err
	}
	cache := []string{"GOCACHE=" + filepath.Join(folder, "cache")}
	begun := time.Now()
	if _, err := runIn(ctx, module, cache, "go", append([]string{"build"}, strings.Fields(imported)...)...); err != nil {
		return 0, 0, err
	}
	library = time.Since(begun)
	if _, err := runIn(ctx, module, cache, "go", "build", "-o", filepath.Join(folder, "coatcheck"), program); err != nil {
		return 0, 0, err
	}
	return library, time.Since(begun), nil
}

// runIn runs a program in a folder, with further variables of the environment, and returns what it
// printed.
func runIn(ctx context.Context, folder string, env []string, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...) //nolint:gosec // make and go, by this file alone
	command.Dir, command.Env = folder, append(os.Environ(), env...)
	told, err := command.Output()
	if err != nil {
		if exit, is := errors.AsType[*exec.ExitError](err); is {
			told = append(told, exit.Stderr...)
		}
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, told)
	}
	return string(told), nil
}
