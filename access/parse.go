package access

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/internal/yamlfile"
)

const maxRecords = 10_000

// Parse reads a file of keys: YAML with the lists keys and certificates, and the map anonymous. The
// error lists every fault on a line of its own, with the file's name and line, or says that this is
// no YAML. It never quotes the file.
func Parse(file string, text []byte) (Set, error) {
	root, err := yamlfile.Map(text, "file of keys", "fields keys, certificates and anonymous")
	switch {
	case errors.Is(err, yamlfile.ErrSyntax):
		return Set{}, errors.New("the file of keys is not YAML") // the parser's words can quote it
	case err != nil:
		return Set{}, err
	}
	p := &parser{}
	p.fields(root, map[string]func(*yaml.Node){
		"keys":         p.list("keys", p.key),
		"certificates": p.list("certificates", p.certificate),
		"anonymous":    p.anonymous,
	})
	if err := p.faults.Err(file); err != nil {
		return Set{}, err
	}
	return p.set, nil
}

type parser struct {
	faults yamlfile.Faults
	set    Set
}

// fields reads a map, each value by its name.
func (p *parser) fields(node *yaml.Node, read map[string]func(*yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		p.faults.Addf(node.Line, "a map belongs here")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		take, known := read[name.Value]
		switch {
		case !known:
			p.faults.Addf(name.Line, "unknown field; here may be %s", strings.Join(slices.Sorted(maps.Keys(read)), ", "))
		case seen[name.Value]:
			p.faults.Addf(name.Line, "%s: given more than once", name.Value)
		default:
			take(value)
		}
		seen[name.Value] = true
	}
}

func (p *parser) list(name string, each func(*yaml.Node)) func(*yaml.Node) {
	return func(node *yaml.Node) {
		switch {
		case node.Kind == yaml.ScalarNode && node.Tag == "!!null":
		case node.Kind != yaml.SequenceNode || len(node.Content) > maxRecords:
			p.faults.Addf(node.Line, "%s: a list of up to %d entries", name, maxRecords)
		default:
			for _, entry := range node.Content {
				each(entry)
			}
		}
	}
}

func (p *parser) key(node *yaml.Node) {
	var r Record
	before := len(p.faults)
	p.fields(node, map[string]func(*yaml.Node){
		"id": p.text("id", &r.ID), "sha256": p.parsed("sha256", r.Hash.UnmarshalText), "principal": p.text("principal", &r.Principal),
		"role": p.parsed("role", r.Role.UnmarshalText), "prefixes": p.names(&r.Names), "rate": p.parsed("rate", r.Rate.UnmarshalText),
		"burst":     p.count("burst", &r.Burst),
		"not_after": p.time("not_after", &r.NotAfter), "label": p.text("label", &r.Label),
	})
	p.check(node, before, r)
	if slices.ContainsFunc(p.set.Keys, func(other Record) bool { return other.ID == r.ID && r.ID != "" }) {
		p.faults.Addf(node.Line, "id: there is a key with this id above")
	}
	p.set.Keys = append(p.set.Keys, r)
}

// check finds the faults of a record whose fields could all be read.
func (p *parser) check(node *yaml.Node, before int, r Record) {
	if len(p.faults) > before {
		return
	}
	for _, fault := range r.faults() {
		p.faults.Addf(lineOf(node, fault.field), "%s: %s", fault.field, fault.text)
	}
}

// lineOf is where a field stands, or the map that lacks it.
func lineOf(node *yaml.Node, field string) int {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == field {
			return node.Content[i].Line
		}
	}
	return node.Line
}

func (p *parser) certificate(node *yaml.Node) {
	var c Certificate
	before := len(p.faults)
	fields := p.callerFields(&c.Caller)
	fields["cn"], fields["dns"], fields["uri"] = p.text("cn", &c.CommonName), p.text("dns", &c.DNS), p.text("uri", &c.URI)
	fields["principal"] = p.text("principal", &c.Caller.Principal)
	p.fields(node, fields)
	said := 0
	for _, name := range []string{c.CommonName, c.DNS, c.URI} {
		if name != "" {
			said++
		}
	}
	if said != 1 && len(p.faults) == before {
		p.faults.Addf(node.Line, "one of cn, dns and uri says which certificate it is")
	}
	p.checkCaller(node, before, c.Caller)
	p.set.Certificates = append(p.set.Certificates, c)
}

func (p *parser) anonymous(node *yaml.Node) {
	before := len(p.faults)
	p.fields(node, p.callerFields(&p.set.Anonymous))
	checked := p.set.Anonymous
	checked.Principal = "x"
	p.checkCaller(node, before, checked)
}

// callerFields reads the rights of an anonymous caller.
func (p *parser) callerFields(into *Caller) map[string]func(*yaml.Node) {
	return map[string]func(*yaml.Node){
		"role": p.parsed("role", into.Role.UnmarshalText), "prefixes": p.names(&into.Names),
		"rate": p.parsed("rate", into.Limit.Rate.UnmarshalText), "burst": p.count("burst", &into.Limit.Burst),
	}
}

// checkCaller checks a caller as part of a record that is sound but for it.
func (p *parser) checkCaller(node *yaml.Node, before int, c Caller) {
	p.check(node, before, Record{ID: "x", Hash: Hash{1}, Principal: c.Principal, Role: c.Role, Names: c.Names, Rate: c.Limit.Rate,
		Burst: c.Limit.Burst})
}

// scalar is the text of a value, which is "" where none belongs.
func (p *parser) scalar(name string, node *yaml.Node) (text string, ok bool) {
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		p.faults.Addf(node.Line, "%s: one value belongs here", name)
		return "", false
	}
	return node.Value, true
}

func (p *parser) text(name string, into *string) func(*yaml.Node) {
	return func(node *yaml.Node) { *into, _ = p.scalar(name, node) }
}

func (p *parser) parsed(name string, read func([]byte) error) func(*yaml.Node) {
	return func(node *yaml.Node) {
		if text, ok := p.scalar(name, node); ok {
			if err := read([]byte(text)); err != nil {
				p.faults.Addf(node.Line, "%s: %v", name, err)
			}
		}
	}
}

func (p *parser) names(into *Names) func(*yaml.Node) {
	return func(node *yaml.Node) {
		if node.Kind != yaml.SequenceNode {
			p.faults.Addf(node.Line, "prefixes: a list, such as [\"orders:*\"]")
			return
		}
		*into = Names{} // a list without entries is a fault, and not the same as no list
		for _, entry := range node.Content {
			if text, ok := p.scalar("prefixes", entry); ok {
				*into = append(*into, text)
			}
		}
	}
}

func (p *parser) count(name string, into *int) func(*yaml.Node) {
	return p.parsed(name, func(text []byte) (err error) {
		if *into, err = strconv.Atoi(string(text)); err != nil || *into < 1 || strconv.Itoa(*into) != string(text) {
			return fmt.Errorf("a whole number from 1 to %d", maxBurst)
		}
		return nil
	})
}

func (p *parser) time(name string, into *time.Time) func(*yaml.Node) {
	return p.parsed(name, func(text []byte) (err error) {
		if *into, err = time.Parse(time.RFC3339, string(text)); err != nil {
			return errors.New("a time is RFC 3339, such as 2027-01-01T00:00:00Z")
		}
		*into = into.UTC()
		return nil
	})
}
