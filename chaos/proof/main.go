// Command proof makes docs/proof.md, and its picture, from what the suites under chaos have written
// down: tools/proof runs both. Every number on the page comes from that file, or, in the tables of
// prices, from chaos/prices, which writes them into the page itself.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coatcheck/coatcheck/chaos/evidence"
)

func main() {
	in := flag.String("in", "bin/proof/counted.jsonl", "what was counted")
	page := flag.String("page", "docs/proof.md", "the page to write")
	flag.Parse()
	if err := write(*in, *page); err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

// pictureFile is the picture's name, from the page's folder.
const pictureFile = "proof/violation.svg"

// write writes the page and its picture, and keeps the tables of prices that the page has.
func write(in, page string) error {
	file, err := os.Open(in)
	if err != nil {
		return err
	}
	defer file.Close()
	lines, err := evidence.Read(file)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	before, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, picture := render(lines, string(before))
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		return err
	}
	if picture == "" {
		return nil
	}
	name := filepath.Join(filepath.Dir(page), pictureFile)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(picture), 0o644)
}
