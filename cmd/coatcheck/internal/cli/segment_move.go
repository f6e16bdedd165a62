package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
)

// tagHome is a source of a tag's ranges.
type tagHome struct {
	// ends the tag there, and tells the first id that was never handed out; it can be repeated
	retire func(ctx context.Context, tag string) (next int64, err error)
	// has the tag go on there at next or beyond; it can be repeated
	open  func(ctx context.Context, tag string, next, step int64) error
	close func()
}

type tagMove struct {
	leafFlags

	from, to string
	step     int64
}

func (p *program) segmentMoveCommand() *cobra.Command {
	m := &tagMove{}
	command := &cobra.Command{
		Example: "  coatcheck segment move orders --from mysql://leaf@db.example:3306/ids --to redis://localhost:6379",
		Use:     "move TAG", Short: "Move a tag between an SQL database and Redis, while it is used", Args: oneTag,
		Long: "Move a tag between an SQL database and Redis, while it is used: it is retired where it is, and only then, when it is " +
			"known which ids can have been handed out, it is opened where it goes.\n" +
			"In between no process gets a new range. Repeat it if it fails in the middle. Leaf's own servers take no notice of a tag " +
			"that is retired: stop them before.",
	}
	step := config.Number("step", strconv.Itoa(segment.DefaultStep), 1, math.MaxInt32, "ids",
		"how many ids a fetch takes at least, in a database", &m.step)
	stores := slices.DeleteFunc(slices.Clone(storeNames), func(name string) bool { return name == "redis" })
	bindSome(command.Flags(), &m.Sources, stores, "", []*config.Setting{step}, append(m.databases(), m.settings()...))
	command.RunE = func(c *cobra.Command, args []string) error {
		if err := m.complete(c, p); err != nil {
			return err
		}
		if m.from == "" || m.to == "" || m.from == m.to {
			return usageError{errors.New("--from and --to belong here, two different ones")}
		}
		return m.leafError(p.moveTag(c.Context(), m, args[0]))
	}
	return command
}

// databases are the places of the tag. Their URLs can have passwords, so they have variables.
func (m *tagMove) databases() []*config.Setting {
	home := func(name, help string, into *string) *config.Setting {
		return config.Redacted(config.Checked(name, "URL", help, checkHome, into), redactHome)
	}
	return inDatabase(
		home("from", "where the tag is: mysql:// | postgres:// | redis:// | rediss:// | unix:// | redis+sentinel:// | redis+cluster://",
			&m.from),
		home("to", "where it goes: the same kinds of URL", &m.to))
}

func (p *program) moveTag(ctx context.Context, m *tagMove, tag string) error {
	from, err := p.home(ctx, m, m.from)
	if err != nil {
		return err
	}
	defer from.close()
	to, err := p.home(ctx, m, m.to)
	if err != nil {
		return err
	}
	defer to.close()
	next, err := from.retire(ctx, tag)
	if err != nil {
		return err
	}
	if err := to.open(ctx, tag, next, m.step); err != nil {
		return fmt.Errorf("%w\n%s is retired where it was, at %d, and not open where it goes. Repeat the command until it does not fail",
			err, tag, next)
	}
	return p.print(map[string]string{"tag": tag, "next": strconv.FormatInt(next, 10)},
		fmt.Sprintf("%s goes on there, at %d or beyond.\n", tag, next))
}

func isSQL(url string) bool {
	_, _, err := config.ParseSQL(url)
	return err == nil
}

func checkHome(url string) error {
	if isSQL(url) {
		return nil
	}
	if err := (redisstore.Config{URL: url}).Check(); err != nil {
		return fmt.Errorf("neither a database nor a Redis: %w", err)
	}
	if url == "embedded:" {
		return errors.New("the embedded store belongs to the service that runs it")
	}
	return nil
}

func redactHome(url string) string {
	if isSQL(url) {
		return config.RedactSQL(url)
	}
	return redisconn.Redact(url)
}

func (p *program) home(ctx context.Context, m *tagMove, url string) (tagHome, error) {
	if isSQL(url) {
		return m.leafHome(url)
	}
	config := m.Service.Store
	config.URL, config.Logger = url, p.logger(&m.Service)
	redisstore.LogTo(config.Logger)
	if err := checkFit(ctx, config); err != nil {
		return tagHome{}, err
	}
	store, err := redisstore.OpenConfig(ctx, config)
	if err != nil {
		return tagHome{}, err
	}
	counters := counter.New(store, redissource.Counters(m.Service.Server.Counters))
	return tagHome{
		retire: func(ctx context.Context, tag string) (int64, error) {
			last, err := counters.Retire(ctx, tag)
			return last + 1, err
		},
		open: func(ctx context.Context, tag string, next, _ int64) error {
			return openCounter(ctx, counters, tag, next)
		},
		close: func() {
			_ = counters.Close() // it waits, and has no error
			_ = store.Close()
		},
	}, nil
}

func (m *tagMove) leafHome(url string) (tagHome, error) {
	leaf, db, err := m.open(url)
	if err != nil {
		return tagHome{}, err
	}
	return tagHome{
		retire: leaf.Retire,
		open: func(ctx context.Context, tag string, next, step int64) error {
			return leaf.Open(ctx, tag, next, step, "")
		},
		close: func() { _ = db.Close() },
	}, nil
}

// openCounter sets a tag's counter, unless that is in use: it is there and was not retired.
func openCounter(ctx context.Context, counters *counter.Counters, tag string, next int64) error {
	there, err := counters.Get(ctx, tag)
	switch {
	case errors.Is(err, counter.ErrNotFound), err == nil && there == math.MaxInt64:
		return counters.Set(ctx, tag, next-1, counter.SetOptions{Back: true})
	case err != nil:
		return err
	case there < next-1:
		return fmt.Errorf("%w: %s is in use there, at %d, which is less: retire it there, or choose another name", segment.ErrTagExists,
			tag, there)
	}
	return nil // it was opened before, and used since
}
