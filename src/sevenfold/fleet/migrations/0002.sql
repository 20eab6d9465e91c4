-- Work that is asked for once ever, and which revisions it made; what all workers may spend in a day;
-- sessions that other machines can write to; a turn for machines that are always late.
alter table sevenfold.job
    add column key text not null default '',
    add column reserved double precision not null default 0,
    add column ended timestamptz;
create unique index job_key on sevenfold.job (space, kind, key) where key <> '';
create index job_cost on sevenfold.job (tenant, ended) where cost > 0;
alter table sevenfold.revision add column job bigint;
alter table sevenfold.memory
    add column reserved_for text,
    add column reserved_until timestamptz;
alter table sevenfold.tenant add column daily_limit double precision;
create table sevenfold.session (
    tenant int not null,
    space bigint not null,
    id text not null,
    machine text not null,
    name text not null,
    agents text[] not null default '{}',
    seen_at timestamptz not null default now(),
    foreign key (tenant, space) references sevenfold.space (tenant, id),
    primary key (space, id));

alter table sevenfold.session enable row level security;
alter table sevenfold.session force row level security;
create policy own on sevenfold.session using (tenant = (select sevenfold.own_tenant()))
    with check (tenant = (select sevenfold.own_tenant()));
grant select, insert, update, delete on sevenfold.session to sevenfold_agent;
