package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// liveLine is a line that is rewritten on a terminal. Without a terminal it writes nothing.
type liveLine struct{ to io.Writer }

// live is such a line on standard error, so that standard output has the result alone.
func (p *program) live() liveLine {
	if p.json || !isTerminal(p.stderr, p.getenv) {
		return liveLine{}
	}
	return liveLine{p.stderr}
}

func (l liveLine) show(text string) {
	if l.to != nil {
		fmt.Fprintf(l.to, "\r\x1b[2K%s", text)
	}
}

func (l liveLine) clear() { l.show("") }

// waitShown is after how long a command says on a terminal that it waits.
const waitShown = 2 * time.Second

// waiting says on a terminal for how long a command has waited, until quiet is called.
func (l liveLine) waiting(command string) (quiet func()) {
	if l.to == nil {
		return func() {}
	}
	end, began := make(chan struct{}), time.Now()
	var shown sync.WaitGroup
	shown.Go(func() {
		for wait := time.After(waitShown); ; wait = time.After(time.Second) {
			select {
			case <-end:
				return
			case <-wait:
				l.show(fmt.Sprintf("%s: waiting for %.0f s", command, time.Since(began).Seconds()))
			}
		}
	})
	return sync.OnceFunc(func() {
		close(end)
		shown.Wait()
		if time.Since(began) >= waitShown {
			l.clear()
		}
	})
}

// waits has the terminal show that a command waits, until quiet.
func (p *program) waits(c *cobra.Command) { p.shown = p.live().waiting(c.CommandPath()) }

func (p *program) quiet() {
	if p.shown != nil {
		p.shown()
	}
}
