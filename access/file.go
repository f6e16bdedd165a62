package access

import (
	"strings"

	"github.com/coatcheck/coatcheck/internal/watch"
)

const maxFile = 4 << 20 // bytes

// ReadFile reads a file of keys, certificates and the rights of anonymous callers. The error lists
// every fault on a line of its own, with the file's line.
func ReadFile(path string) (Set, error) {
	text, _, err := watch.Read(path, maxFile)
	if err != nil {
		return Set{}, err
	}
	return Parse(path, text)
}

// readFileLocked reads the file and puts it in force if it has no fault.
func (p *Policy) readFileLocked() error {
	if p.config.File == "" {
		return nil
	}
	text, version, err := watch.Read(p.config.File, maxFile)
	first := p.seen == watch.Seen{}
	p.seen.Take(version, err)
	if first && watch.IsExposed(p.config.File) {
		p.log.Warn("every user of this machine can read the file of keys; it holds no secret, but shows the callers' rights: chmod o-r",
			"file", p.config.File)
	}
	return p.takeLocked(text, version, err)
}

// lookAtFileLocked reads the file if it is new.
func (p *Policy) lookAtFileLocked() {
	if p.config.File == "" {
		return
	}
	text, version, err := watch.Read(p.config.File, maxFile)
	if p.seen.Look(version, err) {
		_ = p.takeLocked(text, version, err) // it is logged
	}
}

// takeLocked puts the new state in force, or keeps the old one and logs why.
func (p *Policy) takeLocked(text []byte, version string, err error) error {
	var read Set
	if err == nil {
		read, err = Parse(p.config.File, text)
	}
	if err == nil {
		p.file = read
		p.log.Info("keys are in force", "file", p.config.File, "keys", len(read.Keys), "certificates", len(read.Certificates),
			"version", version)
		return nil
	}
	for fault := range strings.SplitSeq(err.Error(), "\n") {
		p.log.Error("the file of keys has a fault; what was read before stays in force", "fault", fault, "version", version)
	}
	return err
}
