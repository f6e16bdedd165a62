package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
)

func (p *program) segmentCommand() *cobra.Command {
	return group("segment", "Make and look at the tags of segment ids in an SQL database; set a tag in Redis",
		"Make and look at the tags of segment ids in an SQL database: the table leaf_alloc, as Leaf has it, in MySQL, MariaDB or "+
			"PostgreSQL. A tag in Redis needs no making;\n"+
			"set says where it goes on.",
		p.segmentCreateCommand(), p.segmentSeedCommand(), p.segmentListCommand(), p.segmentRetireCommand(), p.segmentMoveCommand(),
		p.segmentSetCommand())
}

type leafFlags struct {
	config.Sources

	url      string
	leaf     segment.LeafConfig
	sequence *segment.Sequence // if the table is one
}

// bindLeaf adds --sql, --table, --sql-timeout, --config and a command's arguments to its flags.
func bindLeaf(flags *pflag.FlagSet, arguments ...*config.Setting) *leafFlags {
	l := &leafFlags{}
	// a file may be shared with the service
	bindSome(flags, &l.Sources, nil, "", arguments, append(l.databases(), l.settings()...))
	return l
}

func (l *leafFlags) databases() []*config.Setting {
	return inDatabase(config.DatabaseURL("sql", "the database: mysql://user:password@host:port/database or postgres://…; "+
		"in COATCHECK_SQL or the file others do not see it", &l.url))
}

func (l *leafFlags) settings() []*config.Setting {
	return inDatabase(
		config.Text("table", segment.DefaultLeafTable, "name", "the table of the tags, with or without a schema", &l.leaf.Table),
		config.Span("sql-timeout", segment.DefaultTimeout.String(), 10*time.Millisecond, 10*time.Minute, "how long one transaction may take",
			&l.leaf.Timeout))
}

func inDatabase(settings ...*config.Setting) []*config.Setting {
	return config.In("Database", settings...)
}

// complete reads the flags and checks them together.
func (l *leafFlags) complete(c *cobra.Command, p *program) error {
	if err := errors.Join(l.Load(c.Flags(), p.getenv), l.leaf.Check()); err != nil {
		return configError(err)
	}
	p.waits(c)
	return nil
}

// atLeaf has a command run on the tags of a database, and gives its error an exit code.
func (p *program) atLeaf(command *cobra.Command, l *leafFlags, do func(context.Context, *segment.LeafAlloc,
	[]string) error) *cobra.Command {
	command.RunE = func(c *cobra.Command, args []string) error {
		if err := l.complete(c, p); err != nil {
			return err
		}
		if l.url == "" {
			return usageError{errors.New("which database? --sql mysql://user:password@host:port/database, or COATCHECK_SQL")}
		}
		leaf, db, err := l.open(l.url)
		if err != nil {
			return usageError{err}
		}
		defer db.Close()
		return l.leafError(do(c.Context(), leaf, args))
	}
	return command
}

func (l *leafFlags) open(url string) (*segment.LeafAlloc, *sql.DB, error) {
	db, dialect, err := openSQL(url)
	if err != nil {
		return nil, nil, err
	}
	if l.leaf.Table == segment.DefaultSequenceTable {
		l.sequence = segment.NewSequence(db, dialect, segment.SequenceConfig{Timeout: l.leaf.Timeout})
	}
	return segment.NewLeafAlloc(db, dialect, l.leaf), db, nil
}

// leafError gives an error its exit code.
func (l *leafFlags) leafError(err error) error {
	refused, noTable := answeredSQL(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, segment.ErrInvalid):
		return usageError{err}
	case noTable:
		return fmt.Errorf("%w\nThere is no table %s. To make it: coatcheck segment create-table", err, l.leaf.Table)
	case !refused && errors.Is(err, redisstore.ErrUnavailable):
		return laterError{err}
	}
	return err
}

func (p *program) segmentCreateCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck segment create-table --sql mysql://coatcheck@db.example:3306/ids",
		Use:     "create-table", Short: "Create the table of the tags if it is not there", Args: noArgs,
		Long: "Create the table of the tags, as Leaf has it, or with --table " + segment.DefaultSequenceTable + " as --segment-table " +
			"names it, if it is not there,\n" +
			"and check that it has the columns that it needs. Repeating it is harmless.",
	}
	l := bindLeaf(command.Flags())
	return p.atLeaf(command, l, func(ctx context.Context, leaf *segment.LeafAlloc, _ []string) error {
		create := leaf.CreateTable
		if l.sequence != nil {
			create = l.sequence.CreateTable
		}
		if err := create(ctx); err != nil {
			return err
		}
		return p.print(map[string]string{"table": l.leaf.Table}, "The table "+l.leaf.Table+" is there.\n")
	})
}
