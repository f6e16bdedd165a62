//go:build check

package segments

import (
	"slices"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

const oneByOne = "processes killed, one after another"

var kinds = []chaostest.Fault[*field]{
	{Name: oneByOne, Strike: func(f *field) {
		for range 5 {
			f.sometime()
			f.kill(f.Any())
		}
	}},
	{Name: "all processes killed at once", Strike: func(f *field) {
		f.sometime()
		f.kill(slices.Clone(f.Processes)...)
	}},
	{Name: "process killed as it begins", Long: true, Strike: func(f *field) {
		for range 5 {
			p := f.Any()
			f.kill(p)
			time.Sleep(time.Duration(f.Lot.IntN(300)) * time.Millisecond)
		}
	}},
	{Name: "a server killed", Strike: func(f *field) {
		server := f.servers[f.Lot.IntN(len(f.servers))]
		f.sometime()
		f.killServer(server)
		f.sometime()
		server.restart(f.T)
	}},
	{Name: "a server killed, and processes while it is away", Long: true, Strike: func(f *field) {
		server := f.servers[f.Lot.IntN(len(f.servers))]
		f.sometime()
		f.killServer(server)
		f.kill(f.Any())
		f.sometime()
		f.kill(f.Any())
		server.restart(f.T)
	}},
	{Name: "all servers killed", Long: true, Strike: func(f *field) {
		f.sometime()
		for _, server := range f.servers {
			f.killServer(server)
		}
		for _, server := range f.servers {
			server.restart(f.T)
		}
	}},
}
