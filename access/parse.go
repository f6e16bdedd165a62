package access

import (
	"errors"
	"slices"
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
	var faults yamlfile.Faults
	set := Set{}
	yamlfile.Fields{
		"keys":         yamlfile.Each(maxRecords, set.readKey),
		"certificates": yamlfile.Each(maxRecords, set.readCertificate),
		"anonymous":    set.readAnonymous,
	}.Read(&faults, root)
	if err := faults.Err(file); err != nil {
		return Set{}, err
	}
	return set, nil
}

func (s *Set) readKey(found *yamlfile.Faults, at *yaml.Node) {
	var r Record
	before := len(*found)
	yamlfile.Fields{
		"id": text(&r.ID), "sha256": yamlfile.Parsed(r.Hash.UnmarshalText), "principal": text(&r.Principal),
		"role": yamlfile.Parsed(r.Role.UnmarshalText), "prefixes": prefixes(&r.Names), "rate": yamlfile.Parsed(r.Rate.UnmarshalText),
		"burst": yamlfile.Whole(&r.Burst, 1, maxBurst, "requests"), "not_after": instant(&r.NotAfter), "label": text(&r.Label),
	}.Read(found, at)
	checkRecord(found, at, before, r)
	if slices.ContainsFunc(s.Keys, func(other Record) bool { return other.ID == r.ID && r.ID != "" }) {
		found.Addf(at.Line, "id: there is a key with this id above")
	}
	s.Keys = append(s.Keys, r)
}

// checkRecord finds the faults of a record whose fields could all be read.
func checkRecord(found *yamlfile.Faults, at *yaml.Node, before int, r Record) {
	if len(*found) > before {
		return
	}
	for _, fault := range r.faults() {
		found.Addf(yamlfile.LineOf(at, fault.field), "%s: %s", fault.field, fault.text)
	}
}

func (s *Set) readCertificate(found *yamlfile.Faults, at *yaml.Node) {
	var c Certificate
	before := len(*found)
	fields := callerFields(&c.Caller)
	fields["cn"], fields["dns"], fields["uri"] = text(&c.CommonName), text(&c.DNS), text(&c.URI)
	fields["principal"] = text(&c.Caller.Principal)
	fields.Read(found, at)
	said := 0
	for _, name := range []string{c.CommonName, c.DNS, c.URI} {
		if name != "" {
			said++
		}
	}
	if said != 1 && len(*found) == before {
		found.Addf(at.Line, "one of cn, dns and uri says which certificate it is")
	}
	checkCaller(found, at, before, c.Caller)
	s.Certificates = append(s.Certificates, c)
}

func (s *Set) readAnonymous(found *yamlfile.Faults, _ string, at *yaml.Node) {
	before := len(*found)
	callerFields(&s.Anonymous).Read(found, at)
	checked := s.Anonymous
	checked.Principal = "x"
	checkCaller(found, at, before, checked)
}

// callerFields reads the rights of an anonymous caller.
func callerFields(into *Caller) yamlfile.Fields {
	return yamlfile.Fields{
		"role": yamlfile.Parsed(into.Role.UnmarshalText), "prefixes": prefixes(&into.Names),
		"rate": yamlfile.Parsed(into.Limit.Rate.UnmarshalText), "burst": yamlfile.Whole(&into.Limit.Burst, 1, maxBurst, "requests"),
	}
}

// checkCaller checks a caller as part of a record that is sound but for it.
func checkCaller(found *yamlfile.Faults, at *yaml.Node, before int, c Caller) {
	checkRecord(found, at, before, Record{ID: "x", Hash: Hash{1}, Principal: c.Principal, Role: c.Role, Names: c.Names, Rate: c.Limit.Rate,
		Burst: c.Limit.Burst})
}

func text(into *string) yamlfile.Value {
	return yamlfile.Parsed(func(text []byte) error {
		*into = string(text)
		return nil
	})
}

func prefixes(into *Names) yamlfile.Value {
	return func(found *yamlfile.Faults, name string, at *yaml.Node) {
		if at.Kind != yaml.SequenceNode {
			found.Addf(at.Line, "%s: a list, such as [\"orders:*\"]", name)
			return
		}
		*into = Names{} // a list without entries is a fault, and not the same as no list
		for _, entry := range at.Content {
			var one string
			text(&one)(found, name, entry)
			*into = append(*into, one)
		}
	}
}

func instant(into *time.Time) yamlfile.Value {
	return yamlfile.Parsed(func(text []byte) (err error) {
		if *into, err = time.Parse(time.RFC3339, string(text)); err != nil {
			return errors.New("a time is RFC 3339, such as 2027-01-01T00:00:00Z")
		}
		*into = into.UTC()
		return nil
	})
}
