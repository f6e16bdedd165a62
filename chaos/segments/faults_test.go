//go:build check

package segments

import (
	"slices"
	"time"
)

// fault is a kind of thing that breaks, and is made whole again.
type fault struct {
	name   string
	long   bool // it is left out of a run beside other tests
	strike func(*field)
}

// on strikes a field.
func (k fault) on(f *field) func() { return func() { k.strike(f) } }

var kinds = []fault{
	{"processes killed, one after another", false, func(f *field) {
		for range 5 {
			f.sometime()
			f.kill(f.any())
		}
	}},
	{"all processes killed at once", false, func(f *field) {
		f.sometime()
		f.kill(slices.Clone(f.processes)...)
	}},
	{"process killed as it begins", true, func(f *field) {
		for range 5 {
			p := f.any()
			f.kill(p)
			time.Sleep(time.Duration(f.lot.IntN(300)) * time.Millisecond)
		}
	}},
	{"a server killed", false, func(f *field) {
		server := f.servers[f.lot.IntN(len(f.servers))]
		f.sometime()
		f.killServer(server)
		f.sometime()
		server.restart(f.t)
	}},
	{"a server killed, and processes while it is away", true, func(f *field) {
		server := f.servers[f.lot.IntN(len(f.servers))]
		f.sometime()
		f.killServer(server)
		f.kill(f.any())
		f.sometime()
		f.kill(f.any())
		server.restart(f.t)
	}},
	{"all servers killed", true, func(f *field) {
		f.sometime()
		for _, server := range f.servers {
			f.killServer(server)
		}
		for _, server := range f.servers {
			server.restart(f.t)
		}
	}},
}
