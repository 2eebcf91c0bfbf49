// Package nft is the vocabulary of our two tables: tables, sets, maps, chains,
// rules and statements as typed values, printed as nft's text and JSON. It also
// names the sets and chains of the tables.
package nft
