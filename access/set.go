package access

import (
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"net/url"
	"slices"
	"time"
)

// Certificate is the rights of a client certificate that the service's own authorities have signed.
// One of CommonName, DNS and URI names it.
type Certificate struct {
	CommonName string // of the subject
	DNS        string // one of its alternative names
	URI        string // one of its alternative names, such as spiffe://example/orders
	Caller     Caller
}

func (c Certificate) is(of *x509.Certificate) bool {
	switch {
	case c.DNS != "":
		return slices.Contains(of.DNSNames, c.DNS)
	case c.URI != "":
		return slices.ContainsFunc(of.URIs, func(uri *url.URL) bool { return uri.String() == c.URI })
	}
	return c.CommonName != "" && of.Subject.CommonName == c.CommonName
}

// Set is the content of one source: keys, certificates, anonymous callers' rights. It is read-only.
type Set struct {
	Keys         []Record
	Certificates []Certificate
	Anonymous    Caller // has no principal
}

// set is all sources together, ready to be asked. It is immutable.
type set struct {
	keys         map[string]Record
	certificates []Certificate
	anonymous    Caller
	limit        Limit // of callers that have none of their own
}

// join puts sources together. Where two have a key of the same id, the first one counts.
func join(limit Limit, sources ...Set) (*set, []string) {
	all := &set{keys: map[string]Record{}, limit: limit}
	var twice []string
	for _, source := range sources {
		for _, record := range source.Keys {
			if _, there := all.keys[record.ID]; there {
				twice = append(twice, record.ID)
				continue
			}
			all.keys[record.ID] = record
		}
		all.certificates = append(all.certificates, source.Certificates...)
		if source.Anonymous.Role > all.anonymous.Role {
			all.anonymous = source.Anonymous
		}
	}
	return all, twice
}

// Why a caller is refused. None of these errors holds a key.
var (
	ErrBadKey  = errors.New("access: not a key that is known here")
	ErrExpired = errors.New("access: the key's time is over")
	ErrNotRead = errors.New("access: the keys of the store have not been read yet")
)

// key returns the caller of a key. An unknown id and a wrong secret take the same work.
func (s *set) key(key Key, now time.Time) (Caller, error) {
	record, known := s.keys[key.ID]
	hash := key.Hash()
	same := subtle.ConstantTimeCompare(hash[:], record.Hash[:]) == 1 // without a record, with zeros
	switch {
	case !known || !same:
		return Caller{}, ErrBadKey
	case record.expired(now):
		return Caller{}, ErrExpired
	}
	return s.limited(record.caller()), nil
}

func (s *set) certificate(of *x509.Certificate) (Caller, bool) {
	for _, one := range s.certificates {
		if one.is(of) {
			return s.limited(one.Caller), true
		}
	}
	return Caller{}, false
}

// limited gives a caller the common limit, unless it has its own.
func (s *set) limited(caller Caller) Caller {
	if caller.Limit.None() {
		caller.Limit = s.limit
	}
	return caller
}
