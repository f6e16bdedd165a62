package cli

import (
	"fmt"
	"io"
	"os"
)

// liveLine is one line on a terminal that is rewritten while a command works. Without a terminal it
// writes nothing.
type liveLine struct{ to io.Writer }

// live is such a line on standard error, so that standard output has the result alone.
func (p *program) live() liveLine {
	out, ok := p.stderr.(*os.File)
	if !ok || p.json || p.getenv("TERM") == "dumb" {
		return liveLine{}
	}
	about, err := out.Stat()
	if err != nil || about.Mode()&os.ModeCharDevice == 0 {
		return liveLine{}
	}
	return liveLine{out}
}

// show writes a text over the last one.
func (l liveLine) show(text string) {
	if l.to != nil {
		fmt.Fprintf(l.to, "\r\x1b[2K%s", text)
	}
}

// clear takes the text away.
func (l liveLine) clear() { l.show("") }
