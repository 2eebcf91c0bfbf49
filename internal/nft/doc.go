// Package nft is the vocabulary of our two tables: tables, sets, maps, chains,
// rules and statements as typed values, printed as nft's text and JSON. It also
// names what the tables contain.
package nft
