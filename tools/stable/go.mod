module github.com/coatcheck/coatcheck/tools/stable

go 1.26.0

require (
	go.yaml.in/yaml/v4 v4.0.0
	golang.org/x/exp v0.0.0-20261113113407-e3970619a1a4
	golang.org/x/tools v0.52.1-0.20261106145633-d407941a339a
)

require (
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
