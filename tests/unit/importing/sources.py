"""Placement databases made by hand, in SQLite and without the constraints that would keep them sane."""

import sqlite3
from pathlib import Path
from typing import Final

REVISION: Final = "a082b8bb98d0"

_TIMES: Final = "created_at DATETIME, updated_at DATETIME"

SCHEMA: Final = f"""
CREATE TABLE alembic_version (version_num VARCHAR(32));
CREATE TABLE resource_classes ({_TIMES}, id INTEGER PRIMARY KEY, name VARCHAR(255));
CREATE TABLE traits ({_TIMES}, id INTEGER PRIMARY KEY, name VARCHAR(255));
CREATE TABLE resource_providers ({_TIMES}, id INTEGER PRIMARY KEY, uuid VARCHAR(36), name VARCHAR(200),
    generation INTEGER, root_provider_id INTEGER, parent_provider_id INTEGER);
CREATE TABLE inventories ({_TIMES}, id INTEGER PRIMARY KEY, resource_provider_id INTEGER,
    resource_class_id INTEGER, total INTEGER, reserved INTEGER, min_unit INTEGER, max_unit INTEGER,
    step_size INTEGER, allocation_ratio FLOAT);
CREATE TABLE allocations ({_TIMES}, id INTEGER PRIMARY KEY, resource_provider_id INTEGER,
    consumer_id VARCHAR(36), resource_class_id INTEGER, used INTEGER);
CREATE TABLE resource_provider_aggregates ({_TIMES}, resource_provider_id INTEGER, aggregate_id INTEGER,
    PRIMARY KEY (resource_provider_id, aggregate_id));
CREATE TABLE placement_aggregates ({_TIMES}, id INTEGER PRIMARY KEY, uuid VARCHAR(36));
CREATE TABLE resource_provider_traits ({_TIMES}, trait_id INTEGER, resource_provider_id INTEGER,
    PRIMARY KEY (trait_id, resource_provider_id));
CREATE TABLE projects ({_TIMES}, id INTEGER PRIMARY KEY, external_id VARCHAR(255));
CREATE TABLE users ({_TIMES}, id INTEGER PRIMARY KEY, external_id VARCHAR(255));
CREATE TABLE consumer_types ({_TIMES}, id INTEGER PRIMARY KEY, name VARCHAR(255));
CREATE TABLE consumers ({_TIMES}, id INTEGER PRIMARY KEY, uuid VARCHAR(36), project_id INTEGER,
    user_id INTEGER, generation INTEGER, consumer_type_id INTEGER);
INSERT INTO alembic_version VALUES ('{REVISION}');
"""

HOST: Final = "00000000-0000-4000-8000-000000000001"
CELL: Final = "00000000-0000-4000-8000-000000000002"
CONSUMER: Final = "00000000-0000-4000-8000-00000000000c"
IDLE: Final = "00000000-0000-4000-8000-00000000000d"
AGGREGATE: Final = "00000000-0000-4000-8000-00000000000a"

SOUND: Final = f"""
INSERT INTO resource_classes (id, name) VALUES
    (0, 'VCPU'), (1, 'MEMORY_MB'), (10007, 'CUSTOM_Z'), (10009, 'CUSTOM_A');
INSERT INTO traits (id, name, created_at) VALUES
    (1, 'HW_CPU_X86_AVX2', NULL), (2, 'CUSTOM_T', '2020-01-01 00:00:00'), (3, 'COMPUTE_NODE', NULL);
-- The parent was made after the child.
INSERT INTO resource_providers VALUES
    ('2020-01-01 00:00:00', '2020-01-02 00:00:00.500000', 1, '{CELL}', 'cell', 5, 2, 2),
    ('2020-01-01 00:00:00', NULL, 2, '{HOST}', 'host', 7, 2, NULL);
INSERT INTO inventories VALUES
    ('2020-01-01 00:00:00', '2020-01-03 00:00:00', 1, 2, 0, 8, 1, 1, 8, 1, 4.0),
    (NULL, NULL, 2, 1, 10007, 10, 0, 2, 10, 2, 1.0);
INSERT INTO resource_provider_traits (trait_id, resource_provider_id) VALUES (1, 2), (2, 2), (3, 2);
INSERT INTO placement_aggregates (id, uuid) VALUES (1, '{AGGREGATE}');
INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id) VALUES (2, 1);
INSERT INTO projects (id, external_id) VALUES (1, 'project');
INSERT INTO users (id, external_id) VALUES (1, 'user');
INSERT INTO consumer_types (id, name) VALUES (1, 'INSTANCE');
INSERT INTO consumers VALUES
    ('2020-01-01 00:00:00', '2020-01-09 00:00:00', 1, '{CONSUMER}', 1, 1, 3, 1),
    ('2020-01-01 00:00:00', NULL, 2, '{IDLE}', 1, 1, 0, NULL);
INSERT INTO allocations VALUES
    ('2020-01-04 00:00:00', NULL, 1, 2, '{CONSUMER}', 0, 2),
    ('2020-01-05 00:00:00', NULL, 2, 1, '{CONSUMER}', 10007, 4);
"""


def make_source(path: Path, *scripts: str) -> str:
    """A database of the schema and the scripts; its URL."""
    connection = sqlite3.connect(path)
    for script in (SCHEMA, *scripts):
        connection.executescript(script)
    connection.close()
    return f"sqlite:///{path}"
