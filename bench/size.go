package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// built is the program that make build makes, seen from here.
const built = "../bin/coatcheck"

// sizeCommand builds the program as make build does, and tells how large it is.
func sizeCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("size", flag.ContinueOnError)
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
	t := &table{Title: "size", When: time.Now().UTC(), Machine: aboutGo(), Rounds: 1, Columns: []string{"program", "MB"}}
	size := float64(file.Size()) / 1e6
	t.add("coatcheck", size)
	t.keep(programSize, coatcheck, "MB", []float64{size})
	return out.write(stdout, t)
}

// programSize is what the size command measures.
const programSize = "the program, stripped"

// build makes it.
func build(ctx context.Context) error {
	if told, err := exec.CommandContext(ctx, "make", "-C", "..", "build").CombinedOutput(); err != nil {
		return fmt.Errorf("make build: %w: %s", err, told)
	}
	return nil
}
