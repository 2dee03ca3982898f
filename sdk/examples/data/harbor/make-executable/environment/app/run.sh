#!/bin/sh
echo runs
