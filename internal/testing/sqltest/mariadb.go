package sqltest

import (
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

func findMariaDB() (engine, error) {
	install, err := find("mariadb-install-db", "mariadb-server-core and mariadb-client-core")
	if err != nil {
		return engine{}, err
	}
	// It asks this one for nothing, but does not run without it.
	if _, err := find("my_print_defaults", "mariadb-client-core"); err != nil {
		return engine{}, err
	}
	serve, err := find("mariadbd", "mariadb-server-core", "/usr/sbin", "/usr/libexec")
	if err != nil {
		return engine{}, err
	}
	var as []string
	if os.Getuid() == 0 {
		as = []string{"--user=root"} // it refuses unless it is told so
	}
	return engine{
		scheme:   "mysql",
		database: "mysql",
		install: func(s *Server) []string {
			// The log is as small as it can be made: it is written as a whole here.
			return append([]string{install, "--no-defaults", "--datadir=" + s.path("data"), "--skip-test-db", "--skip-name-resolve",
				"--innodb-log-file-size=4M"}, as...)
		},
		run: func(s *Server) []string {
			return append([]string{
				serve, "--no-defaults", "--datadir=" + s.path("data"), "--socket=" + s.path("socket"), "--pid-file=" + s.path("pid"),
				"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(s.port.Number()), "--skip-name-resolve", "--innodb-log-file-size=4M",
				"--innodb-buffer-pool-size=16M",
				// a commit is handed to the system, which outlives a kill, and not waited for until
				// it is on the disk
				"--innodb-flush-log-at-trx-commit=2",
				"--init-file=" + s.path("init.sql"),
			}, as...)
		},
		files: map[string]string{"init.sql": fmt.Sprintf("CREATE USER IF NOT EXISTS '%s'@'%%' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO "+
			"'%s'@'%%';\n",
			User, strings.ReplaceAll(Password, "'", "''"), User)},
		end:  syscall.SIGKILL,
		open: openMariaDB,
	}, nil
}

func openMariaDB(address, database string, plain bool) (*sql.DB, error) {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName, config.User, config.Passwd = "tcp", address, database, User, Password
	config.Logger = &mysql.NopLogger{} // what it says a call's error says as well
	config.InterpolateParams = plain
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}
