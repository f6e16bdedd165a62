package cli

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/redisstore"
)

func (p *program) keyCommand() *cobra.Command {
	return group("key", "Make API keys, and keep them in Redis",
		"Make API keys. A key is shown once; what is kept of it, in a file (--access), in the environment or in Redis (--redis), is the "+
			"SHA-256 of its secret.",
		p.keyNewCommand(), p.keyAddCommand(), p.keyListCommand(), p.keyRemoveCommand(), p.keyHashCommand())
}

// keyStore is the store of a command's keys: a file, or Redis.
type keyStore struct{ config.Sources }

// bindKeys adds --redis with what belongs to it, --config and the command's arguments.
func bindKeys(flags *pflag.FlagSet, arguments ...*config.Setting) *keyStore {
	k := &keyStore{}
	const help = "the Redis that keys are kept in, for services with --access-store: redis:// | rediss:// | unix:// | redis+sentinel:// " +
		"| redis+cluster://"
	bindSome(flags, &k.Sources, append(storeNames, "access"), help, arguments, nil)
	return k
}

func (k *keyStore) stored() bool { return !k.Service.OnEmbedded() }

// atKeys runs a command at the named Redis.
func (p *program) atKeys(c *cobra.Command, k *keyStore, command func(*redisstore.Store) error) error {
	if !k.stored() {
		return usageError{errors.New("redis: missing; where the keys are, such as --redis redis://localhost:6379")}
	}
	return kindOf(p.straight(c, &k.Sources, command))
}

// wanted is the key that is to be made.
type wanted struct {
	principal, role, label string
	names                  access.Names
	ttl                    time.Duration
	rate                   access.Rate
	burst                  int64
}

func (w *wanted) settings() []*config.Setting {
	return []*config.Setting{
		config.Text("principal", "", "name", "whose key it is: the tokens and keys of two principals never meet", &w.principal),
		config.Choice("role", "use", []string{"read", "use", "admin"},
			"what it may do: read looks; use draws values, leases, locks and issues tokens; admin sets and removes", &w.role),
		namesSetting("prefix", &w.names),
		config.Optional(config.Span("ttl", config.Unsaid, time.Second, longestKey, "how long it is good for, such as 90d; empty: for ever",
			&w.ttl)),
		config.Rate("rate", "how often its principal may ask, such as 100/s; empty: as the service says for all", &w.rate),
		config.Optional(config.Number("burst", "", 1, 1_000_000, "requests",
			"how many requests beyond that rate may come at once", &w.burst)),
		config.Text("label", "", "text", "a note for people", &w.label),
	}
}

// longestKey is how long a key that ends can be good for.
const longestKey = 36_500 * 24 * time.Hour

func namesSetting(name string, into *access.Names) *config.Setting {
	return &config.Setting{Name: name, Unit: "name,…",
		Help: "the names that it may touch, such as orders:* or orders:*,bills:*; empty: all", Parse: func(s string) error {
			*into = nil
			if s == "" {
				return nil
			}
			for part := range strings.SplitSeq(s, ",") {
				found := strings.Fields(part)
				if len(found) == 0 {
					return fmt.Errorf("%q has an empty element: write names with one comma between them, such as orders:*,bills:*; a "+
						"key for all names has none of them, or *", s)
				}
				*into = append(*into, found...)
			}
			return nil
		}}
}

func (p *program) keyNewCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "new --principal NAME", Short: "Make a key, show it once, and say or store what it is worth", Args: noArgs,
		Long: "Make a key and show it, once. Without --redis it prints the record for the file of --access as well; with it, the record " +
			"is stored there,\n" +
			"and services with --access-store take the key within five seconds.",
		Example: "  coatcheck key new --principal orders --role use --prefix 'orders:*' --ttl 90d",
	}
	var w wanted
	k := bindKeys(command.Flags(), w.settings()...)
	return p.loaded(command, &k.Sources, func(c *cobra.Command, _ []string) error {
		key := access.NewKey()
		record, err := w.record(key)
		if err != nil {
			return configError(err)
		}
		if !k.stored() {
			return p.printKey(key, record, false)
		}
		return p.atKeys(c, k, func(store *redisstore.Store) error {
			if err := access.Add(c.Context(), store, record); err != nil {
				return err
			}
			return p.printKey(key, record, true)
		})
	})
}

func (w *wanted) record(key access.Key) (access.Record, error) {
	role, err := access.ParseRole(w.role)
	if err != nil {
		return access.Record{}, err
	}
	record := access.Record{ID: key.ID, Hash: key.Hash(), Principal: w.principal, Role: role, Names: w.names, Rate: w.rate,
		Burst: int(w.burst), Label: w.label}
	if w.ttl > 0 {
		record.NotAfter = time.Now().Add(w.ttl).UTC().Truncate(time.Second)
	}
	return record, record.Check()
}

type madeKey struct {
	Key    string      `json:"key"`
	Record shownRecord `json:"record"`
	Stored bool        `json:"stored"` // in Redis
}

// shownRecord is a record with its time as answers have it.
type shownRecord struct {
	access.Record

	NotAfter api.Time `json:"not_after,omitzero"` // that of the record
}

func recordShown(record access.Record) shownRecord {
	return shownRecord{record, api.At(record.NotAfter)}
}

func (p *program) printKey(key access.Key, record access.Record, stored bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", key.Text())
	if stored {
		fmt.Fprintf(&b, "\nThe key is shown this once. It is stored as %s.\n", record.ID)
	} else {
		fmt.Fprintf(&b, "\nThe key is shown this once. Its record, for the list keys in the file of --access:\n\n%s",
			recordYAML(recordShown(record)))
		if line, ok := record.Line(); ok {
			fmt.Fprintf(&b, "\nor for COATCHECK_ACCESS_KEYS:\n\n%s\n", line)
		}
	}
	return p.print(madeKey{key.Text(), recordShown(record), stored}, b.String())
}

// recordYAML is a record as the file of --access has it.
func recordYAML(r shownRecord) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  - id: %q\n    sha256: %s\n    principal: %q\n    role: %s\n", r.ID, r.Hash, r.Principal, r.Role)
	if len(r.Names) > 0 {
		fmt.Fprintf(&b, "    prefixes: [%s]\n", quotedList(r.Names))
	}
	if r.Rate.N > 0 {
		fmt.Fprintf(&b, "    rate: %s\n", r.Rate)
	}
	if r.Burst > 0 {
		fmt.Fprintf(&b, "    burst: %d\n", r.Burst)
	}
	if !r.NotAfter.IsZero() {
		fmt.Fprintf(&b, "    not_after: %s\n", r.NotAfter.Format(time.RFC3339))
	}
	if r.Label != "" {
		fmt.Fprintf(&b, "    label: %q\n", r.Label)
	}
	return b.String()
}

func quotedList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}

func (p *program) keyAddCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "add RECORD… --redis URL", Short: "Store records of keys that were made before",
		Long: "Store records, each id:role:principal:names:sha256 with names separated by | (none: all), as coatcheck key new prints " +
			"it. Asked again it changes nothing.",
		Example: "  coatcheck key add 'k7x2:use:orders:orders:*:9f86d081…' --redis redis://localhost:6379",
	}
	k := bindKeys(command.Flags())
	return p.loaded(command, &k.Sources, func(c *cobra.Command, args []string) error {
		records, err := access.ParseRecords(strings.Join(args, "\n"))
		if err == nil && len(records) == 0 {
			err = errors.New("one record at least belongs here")
		}
		if err != nil {
			return usageError{err}
		}
		return p.atKeys(c, k, func(store *redisstore.Store) error {
			var ids []string
			for _, record := range records {
				if err := access.Add(c.Context(), store, record); err != nil {
					return fmt.Errorf("%s: %w", record.ID, err)
				}
				ids = append(ids, record.ID)
			}
			return p.print(map[string][]string{"stored": ids}, strings.Join(ids, "\n")+"\n")
		})
	})
}

func (p *program) keyRemoveCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck key rm k7x2 --redis redis://localhost:6379",
		Use:     "rm ID… --redis URL", Short: "Remove keys from Redis; services refuse them within five seconds",
		Args: some("one id at least belongs here"),
	}
	k := bindKeys(command.Flags())
	return p.loaded(command, &k.Sources, func(c *cobra.Command, args []string) error {
		return p.atKeys(c, k, func(store *redisstore.Store) (missing error) {
			removed := []string{}
			for _, id := range args {
				was, err := access.Remove(c.Context(), store, id)
				switch {
				case err != nil:
					return err
				case was:
					removed = append(removed, id)
				default:
					missing = errors.Join(missing, fmt.Errorf("no key %q is stored", id))
				}
			}
			var people strings.Builder
			for _, id := range removed {
				fmt.Fprintf(&people, "removed %s\n", id)
			}
			return errors.Join(p.print(map[string][]string{"removed": removed}, people.String()), missing)
		})
	})
}

func (p *program) keyHashCommand() *cobra.Command {
	return &cobra.Command{
		Example: "  coatcheck key hash < key.txt",
		Use:     "hash", Short: "Read a key from standard input and print its id and its SHA-256", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			line, err := untilEnd(c.Context(), func() ([]byte, error) { return bufio.NewReaderSize(c.InOrStdin(), 1024).ReadSlice('\n') })
			switch {
			case c.Context().Err() != nil:
				return err
			case len(line) == 0:
				return usageError{fmt.Errorf("no key on standard input: %w", err)}
			}
			key, err := access.ParseKey(strings.TrimSpace(string(line)))
			if err != nil {
				return usageError{err}
			}
			return p.print(map[string]string{"id": key.ID, "sha256": key.Hash().String()}, fmt.Sprintf("%s %s\n", key.ID, key.Hash()))
		},
	}
}

type listedKey struct {
	shownRecord

	Source string   `json:"source"` // file, environment or redis
	Added  api.Time `json:"added,omitzero"`
	Error  string   `json:"error,omitempty"`
}

func (p *program) keyListCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck key ls --access keys.yaml",
		Use:     "ls", Short: "List keys of the file (--access), the environment and Redis (--redis)", Args: noArgs,
	}
	k := bindKeys(command.Flags())
	return p.loaded(command, &k.Sources, func(c *cobra.Command, _ []string) error {
		list, err := knownKeys(&k.Service)
		if err != nil {
			return configError(err)
		}
		if !k.stored() {
			return p.printKeys(list)
		}
		return p.atKeys(c, k, func(store *redisstore.Store) error {
			found, err := access.List(c.Context(), store)
			if err != nil {
				return err
			}
			for _, one := range found {
				listed := listedKey{shownRecord: recordShown(one.Record), Source: "redis", Added: api.At(one.Added)}
				if one.Err != nil {
					listed.Error = one.Err.Error()
				}
				list = append(list, listed)
			}
			return p.printKeys(list)
		})
	})
}

// knownKeys are the keys that are known without Redis.
func knownKeys(c *config.Service) (list []listedKey, err error) {
	list = []listedKey{}
	if c.Access.File != "" {
		read, err := access.ReadFile(c.Access.File)
		if err != nil {
			return nil, err
		}
		for _, record := range read.Keys {
			list = append(list, listedKey{shownRecord: recordShown(record), Source: "file"})
		}
	}
	for _, record := range c.Access.Keys {
		list = append(list, listedKey{shownRecord: recordShown(record), Source: "environment"})
	}
	return list, nil
}

func (p *program) printKeys(list []listedKey) error {
	people := tabular("ID\tPRINCIPAL\tROLE\tNAMES\tRATE\tENDS\tSOURCE\tLABEL", func(line func(...string)) {
		for _, one := range list {
			if one.Error != "" {
				line(one.ID, one.Error)
				continue
			}
			names, ends := strings.Join(one.Names, " "), ""
			if len(one.Names) == 0 {
				names = "*"
			}
			if !one.NotAfter.IsZero() {
				ends = one.NotAfter.Format(time.RFC3339)
			}
			line(one.ID, one.Principal, one.Role.String(), names, one.Rate.String(), ends, one.Source, one.Label)
		}
	})
	return p.print(map[string][]listedKey{"keys": list}, people)
}
